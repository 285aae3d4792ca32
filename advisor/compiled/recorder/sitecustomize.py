"""Put on PYTHONPATH by `advisor record` and `advisor run`: starts what they ask for, then whatever sitecustomize the program had."""

# mypy: ignore-errors

import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing heavy may be imported here


def _start() -> None:
    wanted = {"install": "ADVISOR_RECORD", "install_tuner": "ADVISOR_AUTOTUNE_INSTALL"}
    if not any(os.environ.get(name) for name in wanted.values()):
        return
    try:
        spec = importlib.util.spec_from_file_location("_advisor_recorder", os.path.join(_here, "hook.py"))  # noqa: PTH118
        module = importlib.util.module_from_spec(spec)
        sys.modules["_advisor_recorder"] = module
        spec.loader.exec_module(module)
        for function, name in wanted.items():
            if os.environ.get(name):
                getattr(module, function)()
    except Exception as error:
        print(f"advisor: warning: the program runs without advisor's hooks ({type(error).__name__}: {error})", file=sys.stderr)


def _chain() -> None:
    """The next sitecustomize on the path."""
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")  # noqa: PTH118
        if os.path.isfile(path) and os.path.dirname(os.path.abspath(path)) != _here:  # noqa: PTH100, PTH113, PTH120
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)
            return


_start()
_chain()
