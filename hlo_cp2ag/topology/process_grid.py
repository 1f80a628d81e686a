"""Who is on the grid: replicas x partitions, and how a device's id is made of both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessGrid:
    """`replica_count` x `num_partitions` devices; device id = replica * num_partitions + partition.

    Source: StableHLO's process grid, XLA's DeviceAssignment (replica-major).
    """

    replica_count: int
    num_partitions: int

    @property
    def device_count(self) -> int:
        """How many devices there are."""
        return self.replica_count * self.num_partitions

    def device_id(self, replica: int, partition: int) -> int:
        """The flattened id of one process."""
        return replica * self.num_partitions + partition

    def replica_and_partition(self, device_id: int) -> tuple[int, int]:
        """The process of a flattened id."""
        return divmod(device_id, self.num_partitions)

    def __str__(self) -> str:
        return f"{self.replica_count} x {self.num_partitions}"
