"""What a lint says: findings, and the report that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from distlab.tables import aligned, html_table

ERROR, WARNING = "error", "warning"


class LayoutError(ValueError):
    """A model's layouts are not what its rules say. Its text is the report."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or probably not what was meant.

    Attributes:
        severity: `"error"` or `"warning"`.
        kind: `"lost"`, `"unmatched"`, `"version"`, `"ambiguous"`, `"shadowed"`, `"rank"`,
            `"indivisible"`, `"mesh"`, `"not-applied"`, `"model-name"`, `"replicated"`,
            `"sibling"`, `"companion"`, `"unused-axis"` or `"untied"`.
        message: What, and what to do about it.
        rule: The key of the rule it is about, or an empty string.
        paths: The variables it is about.
    """

    severity: str
    kind: str
    message: str
    rule: str = ""
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What `lint` found. Empty, and so false in an `if`, when all is well."""

    findings: tuple[Finding, ...]
    about: str

    def __len__(self) -> int:
        return len(self.findings)

    def kinds(self) -> list[str]:
        """Return the kinds of the findings, for use in tests."""
        return [finding.kind for finding in self.findings]

    def _cells(self) -> list[tuple[str, ...]]:
        return [(f.severity, f.kind, f.message) for f in self.findings]

    @property
    def _summary(self) -> str:
        number = len(self.findings)
        return f"{number or 'no'} finding{'s' * (number != 1)}: {self.about}"

    def __repr__(self) -> str:
        return f"{self._summary}\n{aligned(self._cells())}" if self.findings else self._summary

    def _repr_html_(self) -> str:
        table = html_table(("severity", "kind", "what"), self._cells()) if self.findings else ""
        return f"<p>{escape(self._summary)}</p>{table}"


def some(names: Sequence[str]) -> str:
    """Names in quotes, the first three of many."""
    shown = ", ".join(map(repr, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
