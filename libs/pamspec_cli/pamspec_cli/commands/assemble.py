"""`pamspec assemble`: a context for a model, made of what a query finds."""

import argparse
import sys
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.looking import add_expression, request_of, with_space
from pamspec_client.models import Context

SUMMARY = "make a context for a model from what is found"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_expression(parser)
    parser.add_argument("--max-tokens", type=int, metavar="N", help="so much text (default: 2000)")
    parser.add_argument("--max-items", type=int, metavar="N", help="so many memories (default: 50, at most 200)")
    parser.add_argument(
        "--min-score",
        type=float,
        metavar="SCORE",
        help="leave out what only its vector found, with a semantic score below that",
    )
    parser.add_argument(
        "--instructions", action="append", metavar="TYPE", help="memories of this type may stand as instructions"
    )
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when there is a context, also an empty one; its text on standard output, what was left out beside it."""
    request = request_of(arguments)
    limits = {"max_tokens": arguments.max_tokens, "max_items": arguments.max_items}
    budget: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if budget:
        request["budget"] = budget
    if arguments.min_score is not None:
        request["min_semantic_score"] = arguments.min_score
    if arguments.instructions:
        request["instruction_types"] = arguments.instructions
    with service(arguments).client() as client:
        reply = client.call("assemble", with_space(client, request))
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Context.of(reply.body)
    print(made.text, end="")
    left_out = [f"{number} {why}" for why, number in sorted(made.omitted.items()) if number]
    told = f"{made.budget.used_tokens} of {made.budget.max_tokens} tokens"
    print(told + (f"; left out: {', '.join(left_out)}" if left_out else ""), file=sys.stderr)
    if made.hint:
        print(f"hint: {made.hint} Here that is  --trust working", file=sys.stderr)
    return OK
