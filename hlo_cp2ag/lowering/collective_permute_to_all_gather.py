"""The pass: each collective-permute becomes an all-gather over all devices and a slice of the one shard it delivers.

Reproduces AWS Neuron's NeuronCollectivePermuteToAllGather. For each permute in text order: is its form one that can be
rewritten, are its pairs on the grid, does the gate let it pass? Then its chain is emitted in its place. A permute that
is left says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from hlo_cp2ag.ir.module import Computation, HloModule, Instruction, LineForm
from hlo_cp2ag.ir.rewriter import Edit, NewInstruction, Rewriter, apply_edits, names_in_braces
from hlo_cp2ag.ir.shape import ArrayShape, Layout, TupleShape
from hlo_cp2ag.ir.source import Diagnostic, HloError, Position, SourceText, Span
from hlo_cp2ag.ir.template import CHANNEL, ChainTemplate
from hlo_cp2ag.lowering import eligibility
from hlo_cp2ag.lowering.async_pairs import AsyncPair, AsyncPairs, is_waited_for
from hlo_cp2ag.lowering.call_graph import CallGraph
from hlo_cp2ag.lowering.config import GridConfig, resolve_grid
from hlo_cp2ag.lowering.core_count import core_count_log
from hlo_cp2ag.lowering.emit import ChainPlan, Tail, emit_chain, emit_pair, is_sub_byte_integer
from hlo_cp2ag.lowering.gate import gate_verdict, is_source_target_pairs_invalid, repeated_pairs
from hlo_cp2ag.lowering.mapping import SourceMap, axis_size, placed_in_groups, source_map
from hlo_cp2ag.lowering.options import LoweringOptions, options_for
from hlo_cp2ag.lowering.shared_gathers import Sharing, find_sharing, predecessors_of
from hlo_cp2ag.lowering.simplify import Simplification, emit_simplified, simplification
from hlo_cp2ag.lowering.sites import permutes
from hlo_cp2ag.text.check_touched import check_touched, is_in_order
from hlo_cp2ag.text.parser import parse_source
from hlo_cp2ag.text.printer import Printer, TextStyle
from hlo_cp2ag.topology.gather_groups import all_devices, connected_components, minimal_groups
from hlo_cp2ag.topology.replica_groups import Groups

if TYPE_CHECKING:
    from hlo_cp2ag.lowering.uniformity import Uniformity

Pairs = tuple[tuple[int, int], ...]
Log = Callable[[str], None]

_KEPT = frozenset(("metadata", "origin", "control-predecessors"))
_OWN = frozenset(("source_target_pairs", "channel_id", "slice_sizes"))


@dataclass
class Site:
    """One permute and what became of it."""

    permute: Instruction
    pairs: Pairs
    axis: str
    """What the pairs name: "replica", "partition" or "device"."""
    gate_predicate: bool | None = None
    """What the reference's predicate says; None where it was not asked."""
    action: str = "left"
    """"rewritten" or "left"."""
    reason: str = ""
    """Why it was left, or why it was rewritten with a warning."""
    excluded: bool = False
    """Whether `--only` or `--gate` left it."""
    names_created: tuple[str, ...] = ()
    """Of the new instructions in order; the last one stands for the permute."""
    channel_ids: tuple[int, ...] = ()
    attributes_dropped: tuple[str, ...] = ()
    needs_all_devices: bool = False
    gather_dimensions: tuple[int, ...] = ()
    pair: AsyncPair | None = None
    """The start and the done, where an asynchronous permute was rewritten."""
    groups: Groups = ()
    """The devices that gather from each other; nothing where nothing is gathered."""
    simplified: Simplification = ""
    """What stands for the permute without a gather: "operand" or "zeros"."""
    shared_with: str = ""
    """The permute whose gather this one uses."""
    not_shared: str = ""
    """Why it has a gather of its own although another permute of its operand has one."""

    @property
    def source(self) -> Instruction:
        """The instruction that takes the operands: the permute, or what starts it."""
        return self.permute if self.pair is None else self.pair.start

    @property
    def result(self) -> Instruction:
        """The instruction that hands out the result: the permute, or what ends it."""
        return self.permute if self.pair is None else self.pair.done

    @property
    def position(self) -> Position:
        """The permute's line and column in the text that was handed in."""
        return self.permute.module.source.position(self.permute.span.start)

    @property
    def shard_bytes(self) -> int:
        """Bytes of one device's operands together."""
        return self.gathered_bytes(widen=False)

    def gathered_bytes(self, widen: bool) -> int:
        """The same as it is gathered; with `widen`, a byte for each element that is smaller."""
        shapes = [o.shape for o in self.source.operands if isinstance(o.shape, ArrayShape)]
        return sum(s.element_count if widen and is_sub_byte_integer(s.element_type) else s.byte_size for s in shapes)


@dataclass
class RewriteResult:
    """What the pass did. `module` is new; the module that was handed in is not changed."""

    source: HloModule
    config: GridConfig
    options: LoweringOptions
    sites: list[Site] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    """About the configuration and about permutes that were left or rewritten with a condition."""
    edits: list[Edit] = field(default_factory=list)
    core_count: int = 0
    _module: HloModule | None = None
    _text: str | None = None

    @property
    def changed(self) -> bool:
        """Whether any character of the text differs."""
        return bool(self.edits)

    @property
    def text(self) -> str:
        """The rewritten text."""
        if self._text is None:
            self._text = apply_edits(self.source.text, self.edits) if self.edits else self.source.text
        return self._text

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The rewritten text as UTF-8, piece by piece; what no edit touches is not copied where that can be helped."""
        data = self.source.source.data
        if data is None:
            yield self.text.encode()
            return
        view, position = memoryview(data), 0
        for edit in self.edits:
            yield view[position : edit.span.start]
            yield edit.text.encode()
            position = edit.span.end
        yield view[position:]

    @property
    def module(self) -> HloModule:
        """The rewritten module; the old one if nothing changed."""
        if self._module is None:
            old = self.source.source
            self._module = (
                parse_source(SourceText(self.text, old.filename, old.first_line)) if self.changed else self.source
            )
        return self._module

    @property
    def rewritten(self) -> list[Site]:
        """The permutes that were rewritten."""
        return [site for site in self.sites if site.action == "rewritten"]

    @property
    def left(self) -> list[Site]:
        """The permutes that were left as they are."""
        return [site for site in self.sites if site.action == "left"]


def rewrite(
    module: HloModule,
    *,
    replica_count: int | None = None,
    num_partitions: int | None = None,
    secondary_mesh_count: int = 0,
    strict_grid: bool = False,
    write_config: bool = False,
    profile: str = "xla",
    gate: str | None = None,
    non_target: str | None = None,
    device_id: str | None = None,
    gather_dimension: str | None = None,
    sub_byte: str | None = None,
    names: str | None = None,
    only: str | None = None,
    async_: str | None = None,
    groups: str | None = None,
    share_gathers: bool = False,
    max_gather_bytes: int | None = None,
    simplify: bool = False,
    log: Log | None = None,
) -> RewriteResult:
    """Rewrites every collective-permute of a module that the options let pass.

    Flags that are None take the profile's default. `only` is a regular expression on instruction names. `async_` says
    what becomes of asynchronous pairs ("keep", "convert"), `groups` who gathers together ("all", "minimal").
    `share_gathers` lets permutes of one operand use one gather, `max_gather_bytes` leaves those that gather more on a
    device, and `simplify` does without a gather where everybody keeps its own or nobody receives anything. `log`
    receives the reference pass's log lines.

    Raises ValueError for an unknown value of an option, HloError for a configuration that cannot be right, HloSyntaxError
    for pairs outside the grid, repeated sources or targets (profile xla), and for text that is no HLO where the pass has
    to read it.
    """
    if not isinstance(module, HloModule):
        raise TypeError(f"rewrite takes a module, not {type(module).__name__}: parse(text) makes one")
    options = options_for(
        profile,
        gate=gate,
        non_target=non_target,
        device_id=device_id,
        gather_dimension=gather_dimension,
        sub_byte=sub_byte,
        names=names,
        only=only,
        async_=async_,
        groups=groups,
        share_gathers=share_gathers,
        max_gather_bytes=max_gather_bytes,
        simplify=simplify,
        write_config=write_config,
        strict_grid=strict_grid,
    )
    found = list(_permutes_with_pairs(module)) if "collective-permute" in module.text else []
    config = resolve_grid(module, found, replica_count, num_partitions, secondary_mesh_count, strict_grid, write_config)
    return _Pass(module, options, config, log).run(found)


def _permutes_with_pairs(module: HloModule) -> Iterator[tuple[Instruction, Pairs]]:
    known: dict[LineForm, Pairs] = {}
    for permute in permutes(module):
        line = permute.known_line
        pairs = known.get(line.form) if line is not None else None
        if pairs is None:
            pairs = _pairs(permute)
            if line is not None:
                known[line.form] = pairs
        yield permute, pairs


def _pairs(permute: Instruction) -> Pairs:
    pairs = permute.attribute("source_target_pairs")
    if pairs is None:
        raise permute.error("a collective-permute needs source_target_pairs")
    return cast(Pairs, pairs)


_FormKey = tuple[str, str, str, TextStyle, str]
"""Result shape, attributes, operand's shape, style, separator."""
_MOST_FORMS = 10_000
_LONGEST_FORM = 4_000


@dataclass(slots=True)
class _KnownForm:
    """A form that was rewritten before: the first site of it, its plan, and the template once there is a second."""

    site: Site
    plan: ChainPlan
    template: ChainTemplate | None = None


class _Pass:
    """One run over one module."""

    def __init__(self, module: HloModule, options: LoweringOptions, config: GridConfig, log: Log | None) -> None:
        self.module = module
        self.options = options
        self.config = config
        self.grid = config.grid
        self.log = log
        self._uniformity: Uniformity | None = None
        self._arrivals: dict[Computation, str] = {}
        self._forms: dict[_FormKey, _KnownForm] = {}
        self._sharings: dict[Instruction, list[Sharing]] = {}
        self._sharing_of: dict[Instruction, Sharing] = {}
        self.printer = Printer()
        self.rewriter = Rewriter(module, self.printer, check_touched, is_in_order)
        self.calls = CallGraph(module)
        self.result = RewriteResult(module, config, options)
        for message in config.warnings:
            edited = "; the header is edited to match" if "contradicts the header" in message else ""
            self.result.warnings.append(self._warning(message + edited))
        try:
            self.only = re.compile(options.only) if options.only is not None else None
        except re.error as error:
            raise HloError(f"cp2ag: error: --only is no regular expression: {error}") from None

    def run(self, found: list[tuple[Instruction, Pairs]]) -> RewriteResult:
        if self.log is not None:
            self.log(f"Initial replica_count from config = {self.grid.replica_count}")
            self.log(f"Initial num_partitions from config = {self.grid.num_partitions}")
        self.async_pairs = AsyncPairs([permute for permute, _ in found], self.calls)
        for permute, pairs in found:
            if self._rewrite_like_an_earlier_one(permute, pairs):
                continue
            site = self._site(permute, pairs)
            self.result.sites.append(site)
            site.reason = self._why_left(site)
            if not site.reason and self.options.share_gathers:
                self._find_sharing(site)
            if not self.options.share_gathers:
                self._finish(site)
        # Who shares a gather decides over which devices it is, so that nothing is written before all are known.
        for site in self.result.sites if self.options.share_gathers else ():
            self._finish(site)
        for span, text in self.config.header_edits:
            self.rewriter.replace_text(span, text)
        if self.options.write_config:
            self._write_config()
        self.result.edits = self.rewriter.edits()
        return self.result

    def _finish(self, site: Site) -> None:
        if site.reason:
            self._warn(site, f"left: {site.reason}")
        else:
            self._rewrite(site)

    def _site(self, permute: Instruction, pairs: Pairs) -> Site:
        axis = "partition" if permute.attribute_text("channel_id") is not None else "replica"
        if self.options.device_id == "replica-id":
            axis = "device"
        return Site(permute, pairs, axis)

    def _warning(self, message: str) -> Diagnostic:
        """A warning about the module as a whole, at its header."""
        header = self.module.header_span
        return self.module.source.diagnostic(header.start if header is not None else 0, message, severity="warning")

    def _warn(self, site: Site, message: str) -> None:
        self.result.warnings.append(self.module.source.diagnostic(site.permute.span.start, message, severity="warning"))

    # ---- what is left ----------------------------------------------------------------------------------------------

    def _why_left(self, site: Site) -> str:
        permute, pairs, options = site.permute, site.pairs, self.options
        if self.only is not None and self.only.search(permute.name) is None:
            site.excluded = True
            return "--only excludes it"
        reason = self._find_pair(site) or eligibility.left_for_its_form(permute, site.source, site.result, self.calls)
        if reason:
            return reason
        eligibility.refuse_bad_pairs(permute, pairs, self.grid, site.axis, options)
        size = self.grid.device_count if options.profile == "neuron" else axis_size(self.grid, site.axis)
        site.gate_predicate = is_source_target_pairs_invalid(pairs, self.grid.replica_count, size)
        reason = gate_verdict(options.gate, pairs, self.grid.replica_count, size)
        if reason:
            site.excluded = True
            return reason
        if options.groups == "all" and not options.simplify:  # before maps of that many devices are made
            dimensions = tuple(self._gather_dimension(site, operand) for operand in site.source.operands)
            reason = eligibility.left_for_its_size(site.source, self.grid.device_count, dimensions)
            if reason:
                return reason
        sources = self._sources(site)
        if options.simplify and (site.pair is None or not self._is_ordered(site.pair)):
            site.simplified = simplification(sources, options.non_target)
        if site.simplified == "operand":
            return ""
        if not site.simplified:
            site.gather_dimensions = tuple(self._gather_dimension(site, operand) for operand in site.source.operands)
            site.groups = self._groups([sources.sources])
            reason = self._why_too_large(site, site.groups)
        if not reason and options.non_target == "zero" and not sources.all_targets:
            reason = eligibility.left_for_zeros(site.source)
        return reason

    def _is_ordered(self, pair: AsyncPair) -> bool:
        """Whether control predecessors say when a pair starts: then there has to be a start."""
        return pair.is_waited_for or pair.start.attribute_text("control-predecessors") is not None

    def _groups(self, sources: Sequence[tuple[int, ...]]) -> Groups:
        return minimal_groups(*sources) if self.options.groups == "minimal" else all_devices(self.grid.device_count)

    def _why_too_large(self, site: Site, groups: Groups) -> str:
        reason = eligibility.left_for_its_size(site.source, len(groups[0]), site.gather_dimensions)
        bound = self.options.max_gather_bytes
        if reason or bound is None:
            return reason
        size = len(groups[0]) * site.gathered_bytes(self.options.sub_byte == "widen")
        if size <= bound:
            return ""
        site.excluded = True
        return f"it would gather {size} bytes on each device; --max-gather-bytes is {bound}"

    def _find_sharing(self, site: Site) -> None:
        """Finds an earlier permute whose gather this one can use."""
        if site.simplified or site.pair is not None or len(site.permute.operands) != 1:
            return
        permute = site.permute
        texts = {name: permute.attribute_text(name) for name in ("frontend_attributes", "sharding")}
        attributes = tuple(text.value_text if text is not None else "" for text in texts.values())
        key = (permute.operands[0], site.gather_dimensions, attributes)
        sources = self._sources(site).sources
        others = self._sharings.setdefault(permute.operands[0], [])

        def fits(groups: Groups) -> bool:
            was_excluded = site.excluded
            is_fitting = not self._why_too_large(site, groups)
            site.excluded = was_excluded
            return is_fitting

        sharing, site.not_shared = find_sharing(others, permute, key, sources, site.groups, self._groups, fits)
        if sharing is None:
            sharing = Sharing([permute], key, [sources], site.groups)
            others.append(sharing)
        else:
            site.shared_with = sharing.permutes[0].name
        self._sharing_of[permute] = sharing

    def _find_pair(self, site: Site) -> str:
        """Finds the start and the done of an asynchronous permute; why it is left, if it is."""
        if self.async_pairs.start_of(site.permute) is None:
            return ""
        if self.options.async_ == "keep":
            return eligibility.left_for_its_place(site.permute.computation, self.calls) or "an async start/done pair"
        pair = self.async_pairs.pair(site.permute)
        if isinstance(pair, str):
            return pair
        site.pair = pair
        return ""

    def _sources(self, site: Site) -> SourceMap:
        return source_map(site.pairs, self.grid, site.axis)

    def _gather_dimension(self, site: Site, operand: Instruction) -> int:
        shape = operand.shape
        assert isinstance(shape, ArrayShape)
        layout = shape.layout
        if layout is None:
            result = site.result.shape
            layout = result.layout if isinstance(result, ArrayShape) else None
        return gather_dimension(shape.dimensions, layout, self.options.gather_dimension)

    # ---- what is rewritten -----------------------------------------------------------------------------------------

    def _rewrite(self, site: Site) -> None:
        permute, options = site.permute, self.options
        for touched in dict.fromkeys((permute, site.source, site.result, *site.source.operands)):
            check_touched(touched)
            if touched.opcode != permute.opcode:
                touched.forget()
        if self.log is not None:
            self.log(f"Found collective-permute: {site.source.text}")
        warnings = len(self.result.warnings)
        self._warn_of_repeated_pairs(site)
        if not site.simplified:
            self._warn_of_dimensions(site)
        self._warn_of_broken_promises(site)
        is_plain = len(self.result.warnings) == warnings
        sources = self._sources(site)
        site.action = "rewritten"
        if site.simplified:
            self._simplify(site)
            return
        sharing = self._sharing_of.get(permute)
        if sharing is not None:
            site.groups = sharing.groups
        if site.not_shared:
            self._warn(site, site.not_shared)
        plan = self._plan(site, sources, sharing)
        site.channel_ids = plan.channel_ids
        created = self._replace(site, plan, options.names == "keep")
        site.names_created = tuple(new.name for new in created)
        if sharing is not None and sharing.gather is None:
            sharing.gather = next(new for new in created if new.opcode == "all-gather")
        if self.log is not None:
            self._log_mapping(created, plan.sources)
        if is_plain and site.pair is None and sharing is None:
            self._remember_form(site, plan)
        self._warn_of_arrival(site)

    def _simplify(self, site: Site) -> None:
        """Writes a permute's operand, or zeros, in its place."""
        start, done = site.source, site.result
        plan = self._plan(site, self._sources(site), None)
        if site.pair is not None:
            self.rewriter.erase(start)
            if site.pair.wrapper is not None:
                self.rewriter.erase_computation(site.pair.wrapper)
        predecessors = plan.done_predecessors if site.pair is not None else plan.control_predecessors
        operand = start.operands[0]
        is_alike = operand.shape == done.shape and not isinstance(done.shape, TupleShape)
        # Behind XLA's copy insertion, results that are one buffer twice, or a parameter's, are wrong.
        scheduled = self.module.header_attribute("is_scheduled")
        has_copies = scheduled is not None and scheduled.value_text.strip() == "true"
        is_free = not has_copies and not predecessors and not is_waited_for(done) and done is not done.computation.root
        if site.simplified == "operand" and is_alike and is_free:
            self.rewriter.replace_by_operand(done, operand)
            return
        created = emit_simplified(
            site.simplified,
            has_copies,
            start.operands,
            done.shape,
            plan.every_tail,
            plan.tuple_tail,
            plan.last_tail,
            predecessors,
        )
        self.rewriter.replace(done, created, self.options.names == "keep")
        site.names_created = tuple(new.name for new in created)

    def _replace(self, site: Site, plan: ChainPlan, keep_name: bool) -> list[NewInstruction]:
        """Writes a chain in the place of a permute, or of both ends of an asynchronous one; what was written."""
        if site.pair is None:
            created = emit_chain(plan)
            self.rewriter.replace(site.permute, created, keep_name)
            return created
        started, ended = emit_pair(plan)
        self.rewriter.replace(site.pair.start, started, keep_name)
        self.rewriter.replace(site.pair.done, ended, keep_name)
        if site.pair.wrapper is not None:
            self.rewriter.erase_computation(site.pair.wrapper)
        return [*started, *ended]

    def _warn_of_arrival(self, site: Site) -> None:
        arrival = self._arrival(site) if self._asks_more(site) else ""
        if arrival:
            site.needs_all_devices = True
            site.reason = arrival
            self._warn(site, f"all devices must arrive here together: {arrival}")

    def _asks_more(self, site: Site) -> bool:
        """Whether the gather waits for devices that do not exchange data, not even through others, in the permute."""
        if self.options.groups == "all":
            return True
        sharing = self._sharing_of.get(site.permute)
        sources = sharing.sources if sharing is not None else [self._sources(site).sources]
        connected = set(connected_components(sources))
        return any(group not in connected for group in site.groups)

    # ---- what is like an earlier one -------------------------------------------------------------------------------

    def _form(self, permute: Instruction) -> _FormKey | None:
        """What decides all about a permute but its place and its names; None if that is not its text alone."""
        if self.log is not None or self.only is not None or permute.opcode != "collective-permute":
            return None
        line = permute.known_line
        if line is not None:
            shape, attributes, is_one = line.form.shape, line.attributes, line.form.operand_count == 1
        else:
            body, text = permute.body, self.module.text
            shape = text[body.shape_span.start : body.shape_span.end]
            attributes = text[body.operands_span.end + 1 : body.end]
            is_one = len(body.operands) == 1 and body.operands[0].name is not None
        if not is_one or "control-predecessors" in attributes or len(attributes) > _LONGEST_FORM:
            return None
        if self.module.inline_computations:
            return None
        operand, printer = permute.operands[0].shape.to_text(), self.printer
        return shape, attributes, operand, printer.style(permute), printer.separator(permute)

    def _remember_form(self, site: Site, plan: ChainPlan) -> None:
        form = self._form(site.permute)
        if form is not None and len(self._forms) < _MOST_FORMS:
            self._forms[form] = _KnownForm(site, replace(plan, channel_ids=(CHANNEL,)))

    def _rewrite_like_an_earlier_one(self, permute: Instruction, pairs: Pairs) -> bool:
        """Rewrites a permute whose form was met before; all that was decided then holds again, but for its place."""
        form = self._form(permute) if self._forms else None
        known = self._forms.get(form) if form is not None else None
        if known is None or eligibility.left_for_its_place(permute.computation, self.calls):
            return False
        if known.template is None:
            known.template = self.rewriter.template_of(known.plan.permute, emit_chain(known.plan))
        operand = permute.operands[0]
        check_touched(operand)
        if operand.opcode != permute.opcode:
            operand.forget()
        filled = self.rewriter.replace_by_template(permute, known.template, self.options.names == "keep")
        if filled.channel_id > eligibility.MAXIMUM_CHANNEL_ID:
            raise permute.error("no channel id is left: the module's largest is 2^63 - 1")
        earlier = known.site
        site = Site(
            permute,
            pairs,
            earlier.axis,
            gate_predicate=earlier.gate_predicate,
            action="rewritten",
            names_created=filled.names,
            channel_ids=(filled.channel_id,),
            attributes_dropped=earlier.attributes_dropped,
            gather_dimensions=earlier.gather_dimensions,
            groups=earlier.groups,
        )
        self.result.sites.append(site)
        self._warn_of_arrival(site)
        return True

    def _plan(self, site: Site, sources: SourceMap, sharing: Sharing | None) -> ChainPlan:
        start, done, options = site.source, site.result, self.options
        ends = list(dict.fromkeys((site.permute, start, done)))
        texts = {each: {attribute.name: attribute.value_text for attribute in each.body.attributes} for each in ends}
        keeps_frontend = options.profile == "xla"
        sharded = next((each for each in ends if "sharding" in texts[each]), None)
        every = {"sharding"} if sharded is not None and eligibility.sharding_is_copied(sharded) else set()
        handled = _KEPT | _OWN | every | ({"frontend_attributes"} if keeps_frontend else set())
        dropped = (name for each in ends for name in texts[each] if name not in handled)
        site.attributes_dropped = tuple(dict.fromkeys(dropped))

        def tail(of: Instruction, *wanted: str) -> Tail:
            return tuple((name, texts[of][name]) for name in wanted if name in texts[of])

        def predecessors(of: Instruction) -> tuple[str, ...]:
            text = texts[of].get("control-predecessors")
            return tuple(name for _, name in names_in_braces(text, 0)) if text is not None else ()

        waits_for_all = predecessors(start)
        if sharing is not None:
            waits_for_all = tuple(dict.fromkeys(name for each in sharing.permutes for name in predecessors_of(each)))
        frontend = ("frontend_attributes",) if keeps_frontend else ()
        gather = sharing.gather if sharing is not None else None
        needs_channels = gather is None and not site.simplified
        is_pair = site.pair is not None
        return ChainPlan(
            start,
            start.operands,
            done.shape,
            self.grid,
            placed_in_groups(sources, site.groups),
            site.groups,
            needs_zeros=options.non_target == "zero" and not sources.all_targets,
            flat_replica_id=options.device_id == "replica-id",
            channel_ids=tuple(self._channel_id(site.permute) for _ in start.body.operands) if needs_channels else (),
            gather_dimensions=site.gather_dimensions,
            widen=options.sub_byte == "widen",
            gathers=(gather,) if gather is not None else (),
            gather_tail=tail(start, *frontend) or tail(site.permute, *frontend),
            last_tail=tail(done, "origin", "metadata")
            or tail(site.permute if start is not site.permute else done, "origin", "metadata"),
            every_tail=(("sharding", eligibility.leaf_sharding(sharded)),) if every and sharded is not None else (),
            tuple_tail=tail(done, *every),
            control_predecessors=waits_for_all,
            start_tail=tail(start, "origin", "metadata") if is_pair else (),
            done_tail=tail(done, *frontend) if is_pair else (),
            done_predecessors=predecessors(done) if is_pair else (),
        )

    def _channel_id(self, permute: Instruction) -> int:
        channel = self.rewriter.next_channel_id()
        if channel > eligibility.MAXIMUM_CHANNEL_ID:
            raise permute.error("no channel id is left: the module's largest is 2^63 - 1")
        return channel

    def _warn_of_repeated_pairs(self, site: Site) -> None:
        for text in repeated_pairs(site.pairs):
            self._warn(site, text)

    def _warn_of_broken_promises(self, site: Site) -> None:
        """Flags of the other profile that make the output compute something else than the input did."""
        options, grid = self.options, self.grid
        if options.profile != "xla":
            return
        if options.device_id == "replica-id":
            names = "partition" if site.permute.attribute_text("channel_id") is not None else "replica"
            if grid.num_partitions > 1 or (names == "partition" and grid.replica_count > 1):
                message = f"--device-id replica-id takes the pairs for flat ranks; for XLA they name {names}s of {grid}"
                self._warn(site, message)
        if options.non_target == "keep" and not self._sources(site).all_targets:
            self._warn(site, "--non-target keep: a device that is no target keeps its shard; XLA gives it zeros")

    def _warn_of_dimensions(self, site: Site) -> None:
        for operand, dimension in zip(site.source.operands, site.gather_dimensions, strict=True):
            shape = operand.shape
            assert isinstance(shape, ArrayShape)
            if not is_physically_major(shape.dimensions, shape.layout, dimension):
                self._warn(
                    site,
                    f"gathers along dimension {dimension}, which is not the most major one of {shape.to_text()}: "
                    "right only before layout assignment",
                )
            if self.options.sub_byte == "keep" and is_sub_byte_integer(shape.element_type):
                self._warn(
                    site, f"gathers packed {shape.element_type}: XLA's packed gathers are wrong after layout assignment"
                )

    def _arrival(self, site: Site) -> str:
        """Why not all devices are certain to arrive; nothing if they are."""
        if site.source.computation is self.module.entry:
            return ""
        from hlo_cp2ag.lowering.uniformity import Uniformity  # only for permutes that are not in the entry

        known = self._arrivals.get(site.source.computation)
        if known is not None:
            return known
        if self._uniformity is None:
            self._uniformity = Uniformity(
                self.module,
                self.grid.replica_count,
                self.grid.num_partitions,
                flat_replica_id=self.options.profile == "neuron",
                call_graph=self.calls,
            )
        arrival = self._uniformity.arrival(site.source.computation)
        reason = self._arrivals[site.source.computation] = "" if arrival.together else arrival.reason
        return reason

    def _log_mapping(self, created: Sequence[NewInstruction], sources: SourceMap) -> None:
        assert self.log is not None
        constant = next(
            (new for new in created if new.opcode == "constant" and new.shape == _map_shape(self.grid.device_count)),
            None,
        )
        name = constant.name if constant is not None else ""
        self.log(f"Created mapping array constant: {name} with values: ")
        for index, value in enumerate(sources.sources):
            self.log(f"  mapping_array[{index}] = {value}")

    def _write_config(self) -> None:
        counts = {"replica_count": self.grid.replica_count, "num_partitions": self.grid.num_partitions}
        missing = self.config.missing_in_header
        wanted = [name for name in missing if counts[name] > 1] or (["replica_count"] if len(missing) == 2 else [])
        header, present = self.module.header_span, self.module.header_attribute("num_partitions")
        text = "".join(f", {name}={counts[name]}" for name in wanted)
        if not text:
            return
        if header is not None and present is not None:
            # XLA prints replica_count before num_partitions.
            self.rewriter.replace_text(Span(present.span.start, present.span.start), text[2:] + ", ")
        elif header is not None:
            self.rewriter.replace_text(Span(header.end, header.end), text)
        elif self.module.entry.name_span != Span(0, 0):
            start = len(self.module.text) - len(self.module.text.lstrip())
            self.rewriter.replace_text(Span(start, start), f"HloModule module_{self.module.entry.name}{text}\n\n")
        else:
            message = "--write-config: a bare instruction has no header to write counts into"
            self.result.warnings.append(self._warning(message))


def _map_shape(count: int) -> ArrayShape:
    return ArrayShape("s32", (count,), (), Layout((0,)))


def is_physically_major(dimensions: tuple[int, ...], layout: Layout | None, dimension: int) -> bool:
    """Whether all dimensions that lie further out in memory than `dimension` have size 1."""
    if not dimensions:
        return True
    order = layout.minor_to_major[::-1] if layout is not None and layout.minor_to_major else range(len(dimensions))
    for outer in order:
        if outer == dimension:
            return True
        if dimensions[outer] != 1:
            return False
    return False


def gather_dimension(dimensions: tuple[int, ...], layout: Layout | None, flag: str) -> int:
    """The dimension to gather along: "leading" 0, "major" the most major one, "auto" 0 where that is as good."""
    if not dimensions or flag == "leading" or layout is None or not layout.minor_to_major:
        return 0
    if flag == "auto" and is_physically_major(dimensions, layout, 0):
        return 0
    return layout.minor_to_major[-1]


def platform_log(platform_version: str, nc_divisor: int, override_core_count: int, log: Log) -> None:
    """Logs the core count that the reference pass's constructor computes."""
    log(core_count_log(platform_version, nc_divisor, override_core_count))
