"""Put on PYTHONPATH by `advisor record` and `advisor run`: starts what they ask for, then whatever sitecustomize the program had."""

# mypy: ignore-errors

import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing heavy may be imported here


def _start() -> None:
    if not os.environ.get("ADVISOR_RECORD"):
        return
    try:
        spec = importlib.util.spec_from_file_location("_advisor_recorder", os.path.join(_here, "hook.py"))  # noqa: PTH118
        module = importlib.util.module_from_spec(spec)
        sys.modules["_advisor_recorder"] = module
        spec.loader.exec_module(module)
        module.install()
    except Exception as error:
        print(f"advisor: warning: launches are not recorded ({type(error).__name__}: {error})", file=sys.stderr)


class _AfterTriton:
    """Puts our tuner in the place of Triton's as soon as a program imports Triton."""

    def find_spec(self, name, path=None, target=None):
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("triton")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                try:
                    from advisor import install

                    install()
                except Exception as error:
                    print(f"advisor: warning: triton.autotune stays as it is ({type(error).__name__}: {error})", file=sys.stderr)

            spec.loader.exec_module = exec_module
        return spec


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
if os.environ.get("ADVISOR_AUTOTUNE_INSTALL", "") not in ("", "0"):
    sys.meta_path.insert(0, _AfterTriton())
_chain()
