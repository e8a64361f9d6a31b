"""`manage.py doctor`: what is wrong here, and the line that mends it."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from core.checkup import Finding, State, examine
from core.checkup.database import lose_patience
from core.checkup.findings import worst
from runtime.checkup import checks


class Command(BaseCommand):
    """Looks at everything Trinity stands on; exit code 1 if something doesn't work."""

    help = "Check versions, settings, database, slot store, broker and workers; each finding with the line that mends it."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own type

    def add_arguments(self, parser: CommandParser) -> None:
        """The form of the report."""
        parser.add_argument("--json", action="store_true", help="for programs: {state, findings: [{name, state, seen, mend}]}")

    def handle(self, *args: Any, **options: Any) -> None:
        """Report, and end with 1 where something fails."""
        lose_patience()
        findings = []
        for finding in examine(checks()):
            findings.append(finding)
            if not options["json"]:
                self._tell(finding)
        state = worst(findings)
        if options["json"]:
            self.stdout.write(json.dumps({"state": state, "findings": [asdict(finding) for finding in findings]}, indent=2))
        if state is State.FAIL:
            raise SystemExit(1)

    def _tell(self, finding: Finding) -> None:
        style = {State.OK: self.style.SUCCESS, State.WARN: self.style.WARNING, State.FAIL: self.style.ERROR}[finding.state]
        self.stdout.write(f"{style(f'{finding.state:4}')}  {finding.name:24}{finding.seen}")
        if finding.mend:
            self.stdout.write(f"{'':6}{'':24}→ {finding.mend}")
