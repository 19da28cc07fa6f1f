"""``python -m headrace_dev``: the commands that the Makefile uses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from headrace_connectors.lakehouse import class_archive
from headrace_dev import jars
from headrace_dev.demo.show import demo
from headrace_dev.jars import FetchError
from headrace_dev.java import JavaError
from headrace_dev.server import ServerError
from headrace_dev.stack import Stack
from headrace_dev.versions import BUNDLES, ON_DEMAND


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. An error that the user can correct is printed in one line, without a trace."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except (JavaError, FetchError, ServerError) as error:
        print(f"headrace_dev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace_dev", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    jars_command = commands.add_parser("jars", help="fetch the bundles that are not there yet")
    jars_command.add_argument("bundles", nargs="*", metavar="bundle", help=f"of {', '.join(BUNDLES)}; default: most")
    jars_command.set_defaults(run=_jars)
    commands.add_parser("lock", help="fetch every bundle anew and pin its files").set_defaults(run=_lock)
    classes_command = commands.add_parser(
        "classes", help="archive Spark's classes, so that the JVMs of tests start faster"
    )
    classes_command.set_defaults(run=_classes)
    commands.add_parser("stack", help="run the stack until Enter or Ctrl-C").set_defaults(run=_stack)
    demo_command = commands.add_parser("demo", help="a shop under live load, its tables in the lake")
    demo_command.add_argument("--once", action="store_true", help="a minute of load, then compare every cell")
    demo_command.set_defaults(run=lambda chosen: demo(once=chosen.once))
    return parser


def _jars(chosen: argparse.Namespace) -> int:
    for bundle in chosen.bundles or BUNDLES.keys() - ON_DEMAND:
        jars.folder(bundle)
    return 0


def _lock(_: argparse.Namespace) -> int:
    jars.pin()
    return 0


def _classes(_: argparse.Namespace) -> int:
    if not class_archive.write(jars.resolve("lakehouse")):
        print("classes: this Java writes no archive; the tests run without one, and slower")
    return 0


def _stack(_: argparse.Namespace) -> int:
    with Stack() as stack:
        print(f"Kafka       {stack.kafka.bootstrap_servers}")
        print(f"Connect     {stack.connect.url}")
        print(f"PostgreSQL  {stack.postgres.dsn()}")
        input("Enter stops it. ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
