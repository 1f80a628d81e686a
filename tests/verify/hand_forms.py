"""Replacements of a permute by hand: index arithmetic, masks, groups, gathers of other kinds."""

from __future__ import annotations

from .forms import Form, Setting, by_hand, module_text, ring

FULL = ((0, 2), (2, 3), (3, 1), (1, 0))
"""map[target] = source is 1, 3, 0, 2."""
CHAIN = ((0, 1), (1, 2), (2, 3))
ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"


def looked_up(table: str = "{1,3,0,2}", size: int = 4, index: str = "id", name: str = "source") -> str:
    """Lines that look a device's own entry up."""
    return f"""
        {name}.table = s32[{size}] constant({table})
        {name}.one = s32[1] dynamic-slice({name}.table, {index}), dynamic_slice_sizes={{1}}
        {name} = s32[] reshape({name}.one)
    """


IDENTITY = "id = u32[] partition-id()"
GATHER = f"ag = f32[8,3] all-gather(p), channel_id=2, {ALL}, dimensions={{0}}"
OFFSET = """
    rows = s32[] constant(2)
    start = s32[] multiply(source, rows)
    none = s32[] constant(0)
"""
PICK = "cp = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={2,3}"


PARTS = "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0"
ALONG = "use_global_device_ids=true, dimensions={0}"


def hand_forms() -> list[Form]:
    """All of them."""
    return [*_indices(), *_masks(), *_groups(), *_dimensions()]


def _indices() -> list[Form]:
    full = Setting(1, 4, FULL)
    turn = Setting(1, 4, ring(4))
    return [
        by_hand("shuffled chain", full, f"{OFFSET.replace('start = s32[] multiply(source, rows)', '')} {IDENTITY}"
                f"{looked_up()} start = s32[] multiply(rows, source)\n{GATHER}\n{PICK}"),
        by_hand("shift by arithmetic", turn, f"""
            {IDENTITY}
            three = u32[] constant(3)
            shifted = u32[] add(id, three)
            source = u32[] and(shifted, three)
            rows = u32[] constant(2)
            start = u32[] multiply(source, rows)
            none = u32[] constant(0)
            {GATHER}
            {PICK}
        """),
        by_hand("shift by remainder", turn, f"""
            {IDENTITY}
            six = u32[] constant(6)
            rows = u32[] constant(2)
            eight = u32[] constant(8)
            scaled = u32[] multiply(id, rows)
            shifted = u32[] add(scaled, six)
            start = u32[] remainder(shifted, eight)
            none = u32[] constant(0)
            {GATHER}
            {PICK}
        """),
        by_hand("offsets looked up", full, f"""
            {GATHER}
            {IDENTITY}
            {looked_up("{2,6,0,4}")}
            none = s32[] constant(0)
            cp = f32[2,3] dynamic-slice(ag, source, none), dynamic_slice_sizes={{2,3}}
        """),
        by_hand("select tree", full, f"""
            {GATHER}
            {IDENTITY}
            n0 = u32[] constant(0)
            n1 = u32[] constant(1)
            n2 = u32[] constant(2)
            is0 = pred[] compare(id, n0), direction=EQ
            is1 = pred[] compare(id, n1), direction=EQ
            is2 = pred[] compare(id, n2), direction=EQ
            choice.0 = s32[] constant(1)
            choice.1 = s32[] constant(3)
            choice.2 = s32[] constant(0)
            choice.3 = s32[] constant(2)
            last = s32[] select(is2, choice.2, choice.3)
            later = s32[] select(is1, choice.1, last)
            source = s32[] select(is0, choice.0, later)
            {OFFSET}
            {PICK}
        """),
        by_hand("gather op", full, f"""
            {GATHER}
            parts = f32[4,2,3] reshape(ag)
            {IDENTITY}
            {looked_up()}
            cp = f32[2,3] gather(parts, source), offset_dims={{0,1}}, {PARTS}, slice_sizes={{1,2,3}}
        """),
        by_hand("gather op of the table", full, f"""
            {GATHER}
            {IDENTITY}
            table = s32[4] constant({{1,3,0,2}})
            source = s32[] gather(table, id), offset_dims={{}}, {PARTS}, slice_sizes={{1}}
            {OFFSET}
            {PICK}
        """),
        by_hand("turned by concatenation", turn, f"""
            {GATHER}
            head = f32[6,3] slice(ag), slice={{[0:6], [0:3]}}
            tail = f32[2,3] slice(ag), slice={{[6:8], [0:3]}}
            turned = f32[8,3] concatenate(tail, head), dimensions={{0}}
            source = u32[] partition-id()
            rows = u32[] constant(2)
            start = u32[] multiply(source, rows)
            none = u32[] constant(0)
            cp = f32[2,3] dynamic-slice(turned, start, none), dynamic_slice_sizes={{2,3}}
        """),
        by_hand("shifted by padding", Setting(1, 4, CHAIN), f"""
            {GATHER}
            nothing = f32[] constant(0)
            moved = f32[8,3] pad(ag, nothing), padding=2_-2x0_0
            source = u32[] partition-id()
            rows = u32[] constant(2)
            start = u32[] multiply(source, rows)
            none = u32[] constant(0)
            cp = f32[2,3] dynamic-slice(moved, start, none), dynamic_slice_sizes={{2,3}}
        """),
        by_hand("reversed", Setting(1, 4, ((0, 3), (1, 2), (2, 1), (3, 0))), f"""
            {GATHER}
            parts = f32[4,2,3] reshape(ag)
            turned = f32[4,2,3] reverse(parts), dimensions={{0}}
            source = u32[] partition-id()
            none = u32[] constant(0)
            one = f32[1,2,3] dynamic-slice(turned, source, none, none), dynamic_slice_sizes={{1,2,3}}
            cp = f32[2,3] reshape(one)
        """),
        by_hand("chosen by a conditional", Setting(1, 4, ((1, 0), (0, 1))), f"""
            {GATHER}
            {IDENTITY}
            two = u32[] constant(2)
            inside = pred[] compare(id, two), direction=LT
            cp = f32[2,3] conditional(inside, ag, ag), true_computation=other, false_computation=nothing
        """, helpers="""
            other {
              a = f32[8,3] parameter(0)
              id = u32[] partition-id()
              one = u32[] constant(1)
              source = u32[] xor(id, one)
              rows = u32[] constant(2)
              start = u32[] multiply(source, rows)
              none = u32[] constant(0)
              ROOT r = f32[2,3] dynamic-slice(a, start, none), dynamic_slice_sizes={2,3}
            }
            nothing {
              a = f32[8,3] parameter(0)
              zero = f32[] constant(0)
              ROOT r = f32[2,3] broadcast(zero), dimensions={}
            }
        """),
    ]  # fmt: skip


def _masks() -> list[Form]:
    def one_hot(element: str, opcode: str, dims: str = "2,3") -> str:
        zero = "false" if element == "pred" else "0"
        return f"""
            wide = {element}[1,{dims}] reshape(p)
            ag = {element}[4,{dims}] all-gather(wide), channel_id=2, {ALL}, dimensions={{0}}
            {IDENTITY}
            {looked_up()}
            place = s32[4,{dims}] iota(), iota_dimension=0
            sources = s32[4,{dims}] broadcast(source), dimensions={{}}
            mask = pred[4,{dims}] compare(place, sources), direction=EQ
            zero = {element}[] constant({zero})
            zeros = {element}[4,{dims}] broadcast(zero), dimensions={{}}
            lone = {element}[4,{dims}] select(mask, ag, zeros)
            cp = {element}[{dims}] reduce(lone, zero), dimensions={{0}}, to_apply=join
        """

    def join(element: str, opcode: str) -> str:
        return f"""
            join {{
              a = {element}[] parameter(0)
              b = {element}[] parameter(1)
              ROOT r = {element}[] {opcode}(a, b)
            }}
        """

    forms = [
        by_hand(f"one-hot {opcode} of {element}", Setting(1, 4, FULL, element, dims),
                one_hot(element, opcode, ",".join(map(str, dims))), helpers=join(element, opcode))
        for element, opcode, dims in (
            ("s32", "add", (2, 3)), ("u32", "or", (2, 3)), ("pred", "or", (4, 5)), ("u16", "maximum", (2, 3)),
        )
    ]  # fmt: skip
    chain = Setting(1, 4, CHAIN)
    zeros = """
        zero = f32[] constant(0)
        zeros = f32[2,3] broadcast(zero), dimensions={}
    """
    forms += [
        by_hand("mask by comparison", chain, f"""
            {GATHER}
            {IDENTITY}
            {looked_up("{0,0,1,2}")}
            {OFFSET}
            found = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
            nobody = u32[] constant(0)
            heard = pred[] compare(id, nobody), direction=GT
            {zeros}
            cp = f32[2,3] select(heard, found, zeros)
        """),
        by_hand("zeros gathered too", chain, f"""
            {GATHER}
            {zeros}
            more = f32[10,3] concatenate(ag, zeros), dimensions={{0}}
            {IDENTITY}
            {looked_up("{8,0,2,4}")}
            none = s32[] constant(0)
            cp = f32[2,3] dynamic-slice(more, source, none), dynamic_slice_sizes={{2,3}}
        """),
        by_hand("mask before the gather", Setting(1, 4, ((0, 1), (2, 3))), f"""
            {IDENTITY}
            flags = pred[4] constant({{1, 0, 1, 0}})
            flag = pred[1] dynamic-slice(flags, id), dynamic_slice_sizes={{1}}
            sends = pred[] reshape(flag)
            {zeros}
            sent = f32[2,3] select(sends, p, zeros)
            ag = f32[8,3] all-gather(sent), channel_id=2, {ALL}, dimensions={{0}}
            {looked_up("{1,0,3,2}")}
            {OFFSET}
            {PICK}
        """),
        by_hand("bits and a mask", Setting(1, 4, CHAIN, "u32"), f"""
            ag = u32[8,3] all-gather(p), channel_id=2, {ALL}, dimensions={{0}}
            {IDENTITY}
            {looked_up("{0,0,1,2}")}
            {OFFSET}
            found = u32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
            masks = u32[4] constant({{0, 4294967295, 4294967295, 4294967295}})
            one = u32[1] dynamic-slice(masks, id), dynamic_slice_sizes={{1}}
            mask = u32[] reshape(one)
            wide = u32[2,3] broadcast(mask), dimensions={{}}
            cp = u32[2,3] and(found, wide)
        """),
    ]  # fmt: skip
    return forms


def _groups() -> list[Form]:
    halves = ((0, 1), (1, 2), (2, 3), (3, 0), (4, 6), (6, 4), (5, 5), (7, 7))
    eight = Setting(1, 8, halves)
    return [
        by_hand("subgroups", eight, f"""
            ag = f32[8,3] all-gather(p), channel_id=2, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, {ALONG}
            {IDENTITY}
            {looked_up("{3,0,1,2,2,1,0,3}", 8)}
            {OFFSET}
            {PICK}
        """),
        by_hand("subgroups in odd order", eight, f"""
            ag = f32[8,3] all-gather(p), channel_id=2, replica_groups={{{{7,4,6,5}},{{2,0,3,1}}}}, {ALONG}
            {IDENTITY}
            {looked_up("{2,1,3,0,2,3,1,0}", 8)}
            {OFFSET}
            {PICK}
        """),
        by_hand("one group in odd order", Setting(1, 4, FULL), f"""
            ag = f32[8,3] all-gather(p), channel_id=2, replica_groups={{{{3,1,0,2}}}}, {ALONG}
            {IDENTITY}
            {looked_up("{1,0,2,3}")}
            {OFFSET}
            {PICK}
        """),
        by_hand("each replica's partitions", Setting(2, 4, FULL), f"""
            ag = f32[8,3] all-gather(p), channel_id=2, replica_groups={{{{0}},{{1}}}}, dimensions={{0}}
            {IDENTITY}
            {looked_up()}
            {OFFSET}
            {PICK}
        """),
        by_hand("replicas alone", Setting(4, 2, FULL, channel=False), f"""
            ag = f32[8,3] all-gather(p), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}
            id = u32[] replica-id()
            {looked_up()}
            {OFFSET}
            {PICK}
        """),
        by_hand("groups by iota", Setting(2, 4, ((0, 1), (1, 0), (3, 2))), f"""
            ag = f32[4,3] all-gather(p), channel_id=2, replica_groups=[4,2]<=[8], {ALONG}
            {IDENTITY}
            {looked_up("{1,0,1,0}")}
            {OFFSET}
            found = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
            last = u32[] constant(3)
            heard = pred[] compare(id, last), direction=NE
            zero = f32[] constant(0)
            zeros = f32[2,3] broadcast(zero), dimensions={{}}
            cp = f32[2,3] select(heard, found, zeros)
        """),
        _shared_gather(),
        _two_at_once(),
    ]  # fmt: skip


def _shared_gather() -> Form:
    setting = Setting(1, 4, FULL)
    shape, header = setting.shape, setting.header
    frame = (f"p = {shape} parameter(0)", f"q = {shape} parameter(1)")
    end = (f"sum = {shape} add(one, q)", f"ROOT out = ({shape}, {shape}) tuple(sum, two)")
    before = module_text(header, [*frame, setting.permute("p", "one"), setting.permute("p", "two", ring(4)), *end])
    picks = f"""
        {GATHER}
        {IDENTITY}
        {looked_up()}
        {OFFSET}
        one = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
        {looked_up("{3,0,1,2}", name="other")}
        start.2 = s32[] multiply(other, rows)
        two = f32[2,3] dynamic-slice(ag, start.2, none), dynamic_slice_sizes={{2,3}}
    """
    after = module_text(header, [*frame, *(line.strip() for line in picks.splitlines() if line.strip()), *end])
    return Form("shared gather", before, after, 1, 4)


def _two_at_once() -> Form:
    setting = Setting(1, 4, FULL)
    shape, header = setting.shape, setting.header
    frame = (f"p = {shape} parameter(0)", f"q = {shape} parameter(1)")
    end = (f"sum = {shape} subtract(one, two)", f"ROOT out = ({shape}, {shape}) tuple(sum, two)")
    before = module_text(header, [*frame, setting.permute("p", "one"), setting.permute("q", "two"), *end])
    picks = f"""
        ag = (f32[8,3], f32[8,3]) all-gather(p, q), channel_id=2, {ALL}, dimensions={{0}}
        {IDENTITY}
        {looked_up()}
        {OFFSET}
        ag.0 = f32[8,3] get-tuple-element(ag), index=0
        ag.1 = f32[8,3] get-tuple-element(ag), index=1
        one = f32[2,3] dynamic-slice(ag.0, start, none), dynamic_slice_sizes={{2,3}}
        two = f32[2,3] dynamic-slice(ag.1, start, none), dynamic_slice_sizes={{2,3}}
    """
    after = module_text(header, [*frame, *(line.strip() for line in picks.splitlines() if line.strip()), *end])
    return Form("gather of two arrays", before, after, 1, 4, "scheduled")


def _dimensions() -> list[Form]:
    full = Setting(1, 4, FULL)
    return [
        by_hand("along the other dimension", full, f"""
            ag = f32[2,12] all-gather(p), channel_id=2, {ALL}, dimensions={{1}}
            {IDENTITY}
            {looked_up()}
            columns = s32[] constant(3)
            start = s32[] multiply(source, columns)
            none = s32[] constant(0)
            cp = f32[2,3] dynamic-slice(ag, none, start), dynamic_slice_sizes={{2,3}}
        """),
        by_hand("transposed", full, f"""
            turned = f32[3,2] transpose(p), dimensions={{1,0}}
            ag = f32[12,2] all-gather(turned), channel_id=2, {ALL}, dimensions={{0}}
            {IDENTITY}
            {looked_up()}
            columns = s32[] constant(3)
            start = s32[] multiply(source, columns)
            none = s32[] constant(0)
            found = f32[3,2] dynamic-slice(ag, start, none), dynamic_slice_sizes={{3,2}}
            cp = f32[2,3] transpose(found), dimensions={{1,0}}
        """),
        by_hand("flattened", full, f"""
            flat = f32[6] reshape(p)
            ag = f32[24] all-gather(flat), channel_id=2, {ALL}, dimensions={{0}}
            parts = f32[4,6] reshape(ag)
            {IDENTITY}
            {looked_up()}
            none = s32[] constant(0)
            found = f32[1,6] dynamic-slice(parts, source, none), dynamic_slice_sizes={{1,6}}
            cp = f32[2,3] reshape(found)
        """),
        by_hand("barriers and copies", full, f"""
            held = f32[2,3] opt-barrier(p)
            copied = f32[2,3] copy(held)
            ag = f32[8,3] all-gather(copied), channel_id=2, {ALL}, dimensions={{0}}
            {IDENTITY}
            both = (f32[8,3], u32[]) tuple(ag, id)
            held.2 = (f32[8,3], u32[]) opt-barrier(both)
            ag.2 = f32[8,3] get-tuple-element(held.2), index=0
            id.2 = u32[] get-tuple-element(held.2), index=1
            {looked_up(index="id.2")}
            {OFFSET}
            cp = f32[2,3] dynamic-slice(ag.2, start, none), dynamic_slice_sizes={{2,3}}
        """),
    ]  # fmt: skip
