"""Conformance cases of PAMSPEC: eleven profiles, run against any implementation through a binding.

It knows no implementation: a case sends operation documents and judges what comes back. `HttpBinding` is the binding
over HTTP; another one needs `call` alone.
"""

from pamspec_conformance.binding import Binding, Facilities, Refusal, Reply
from pamspec_conformance.case import Case, Deviation, NotTried, NotYet
from pamspec_conformance.catalogue import cases
from pamspec_conformance.http import HttpBinding
from pamspec_conformance.profiles import PROFILES, Profile
from pamspec_conformance.report import Report, Statement
from pamspec_conformance.run import Outcome, Result, run_cases
from pamspec_conformance.trial import Trial

__all__ = [
    "PROFILES",
    "Binding",
    "Case",
    "Deviation",
    "Facilities",
    "HttpBinding",
    "NotTried",
    "NotYet",
    "Outcome",
    "Profile",
    "Refusal",
    "Reply",
    "Report",
    "Result",
    "Statement",
    "Trial",
    "cases",
    "run_cases",
]
