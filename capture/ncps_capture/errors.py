"""Errors of all three floors, sorted by whose fault they are.

A message names the operation, the object and the next step, in one line: it is printed to a person
as it stands. What a *target* does (refuses, times out) is data in a record, never an exception.
"""


class NcpsError(Exception):
    """Base of every error that is told to the person in one line instead of a traceback."""

    exit_code = 1


class UsageError(NcpsError):
    """The person asked for something that cannot be meant: a bad option, value or combination."""

    exit_code = 2


class EnvironmentFault(NcpsError):  # noqa: N818 - "EnvironmentError" is taken by Python
    """This machine does not allow it: limits, rights, missing libpcap, address in use."""

    exit_code = 3


class CaptureUnavailable(EnvironmentFault):
    """Packets cannot be captured here; the message says why and which command would help."""


class FileFault(EnvironmentFault):
    """A file cannot be read or written, or is damaged; names the file and the byte."""
