#!/usr/bin/env python
"""Django's command line, with Trinity's settings."""

import argparse
import os
import sys
from pathlib import Path

try:
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run it as .venv/bin/python manage.py …, after `make setup`")


def settle_data_dir(argv: list[str]) -> None:
    """Put `--data-dir` into the environment before the settings are read: reading them makes files there."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data-dir")
    wanted = parser.parse_known_args(argv)[0].data_dir
    if wanted:
        os.environ["TRINITY_DATA_DIR"] = str(Path(wanted).expanduser().absolute())


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
    if sys.argv[1:2] == ["up"]:
        settle_data_dir(sys.argv[2:])
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as wrong:
        sys.exit(f"Settings: {wrong}")
