"""One benchmark on its ground: `python -m benchmarks.session NAME OUT [--full] [--rounds N]` writes its figures to OUT as JSON."""

import argparse
import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import django
from django.core.management import call_command


def main() -> None:
    """Set the ground's database up, measure, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    django.setup()
    call_command("migrate", verbosity=0)
    options = import_module("benchmarks.suite").Options(full=asked.full, rounds=asked.rounds)
    figures = import_module(f"benchmarks.suite.{asked.name}").measure(options)
    asked.out.write_text(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    main()
