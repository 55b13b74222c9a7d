"""What a kernel runs first under `make lab`: it lets TensorFlow start without its notices.

TensorFlow writes them from C++ before it looks at the variable that would turn them off. Warnings
and errors are shown. IPython runs this file among the reader's own names, so it leaves none there.
"""


def _install() -> None:
    import os
    import sys
    from collections.abc import Sequence
    from importlib.abc import MetaPathFinder
    from importlib.machinery import ModuleSpec, PathFinder
    from types import ModuleType

    class Finder(MetaPathFinder):
        """Finds TensorFlow where it is, and has it started by `start`."""

        def find_spec(
            self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if name != "tensorflow":
                return None
            try:
                from distlab import frameworks
            except ModuleNotFoundError:  # the kernel of another environment
                return None
            spec = PathFinder.find_spec(name, path, target)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def start(module: ModuleType) -> None:
                # No notices later on either. JAX, which TensorFlow loads, would set it too late.
                os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
                with frameworks.without_chatter():
                    execute(module)
                    # Without an NVIDIA GPU the first look for one says that there is none.
                    if frameworks.is_chatter("failed call to cuInit"):
                        module.config.list_physical_devices()

            setattr(spec.loader, "exec_module", start)  # noqa: B010
            return spec

    sys.meta_path.insert(0, Finder())


_install()
del _install
