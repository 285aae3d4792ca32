"""Why a kernel could not be compiled or read."""

from __future__ import annotations

from advisor.system.errors import InputError


class CompileError(InputError):
    """The compiler refused a kernel.

    Attributes:
        kind: "failed" (the compiler said no), "refused" (it would run Python), "absent" (whatever it is given, this Triton
            lacks what it names), "timeout", "crash".
    """

    longest_got = 400  # the compiler says what matters at the end

    def __init__(self, what: str, got: object = None, limit: str | None = None, remedy: str | None = None, kind: str = "failed") -> None:
        super().__init__(what, got, limit, remedy)
        self.kind = kind

    def __reduce__(self) -> tuple:
        return type(self), (self.what, self.got, self.limit, self.remedy, self.kind)


class IrError(InputError):
    """The compiler's text is not what this version of the advisor can read."""
