"""
Transformers' own common model tests, loaded from the source archive of the installed version.

The wheel has no tests, and the archive lacks the generation tests that the model tests import. What is missing is
replaced by an empty mixin. Folders with more of them (a checkout of Transformers) can be named in the environment
variable `TRANSFORMERS_TESTS`; they are put behind the archive's.

    python tests/contract/upstream.py     fetch the archive into .cache/ through pip, once
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tarfile
import types
from importlib.metadata import version
from pathlib import Path


VERSION = version("transformers")
CACHE = Path(__file__).parents[2] / ".cache" / "upstream"
ARCHIVE_TESTS = CACHE / f"transformers-{VERSION}" / "tests"
CONFIG_VALUES = {"output_hidden_states": True, "return_dict": False, "dtype": "float16", "id2label": {0: "a", 1: "b"}}
# what the archive's modules import from modules that it does not contain
STAND_INS = {
    "tests.exporters.test_export": {"ExportTesterMixin": None, "ExportGenerateTesterMixin": None},
    "tests.generation.test_utils": {"GenerationTesterMixin": None},
    "tests.utils.test_configuration_utils": {"config_common_kwargs": CONFIG_VALUES},
}
stand_ins_used: list[str] = []


def fetch():
    """Download and unpack the source archive of the installed version; nothing to do where it is there already."""
    if ARCHIVE_TESTS.is_dir():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(CACHE)]
    subprocess.run([sys.executable, "-m", "pip", *command, f"transformers=={VERSION}"], check=True)
    with tarfile.open(CACHE / f"transformers-{VERSION}.tar.gz") as archive:
        wanted = [member for member in archive.getmembers() if f"transformers-{VERSION}/tests/" in member.name]
        archive.extractall(CACHE, members=wanted, filter="data")


def folders() -> list[str]:
    further = os.environ.get("TRANSFORMERS_TESTS", "").split(os.pathsep)
    return [str(path) for path in (ARCHIVE_TESTS, *map(Path, filter(None, further))) if path.is_dir()]


class RenamingLoader(importlib.machinery.SourceFileLoader):
    """Reads tests written before `past_key_values` became `cache`."""

    def get_data(self, path):
        data = super().get_data(path)
        return data.replace(b"past_key_values", b"cache") if path.endswith(".py") else data

    def path_stats(self, path):
        raise OSError("the text differs from the file, so no bytecode is kept")


class RenamingFinder(importlib.abc.MetaPathFinder):
    """Serves the packages that never come with the archive, hence from another version."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(("tests.generation.", "tests.exporters.")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = RenamingLoader(spec.loader.name, spec.loader.path)
        return spec


def stand_in(name: str):
    parent, _, leaf = name.rpartition(".")
    if parent not in sys.modules:
        package = types.ModuleType(parent)
        package.__path__ = []
        sys.modules[parent] = package
    module = types.ModuleType(name)
    for attribute, value in STAND_INS[name].items():
        setattr(module, attribute, type(attribute, (), {}) if value is None else value)
    sys.modules[name] = module
    setattr(sys.modules[parent], leaf, module)
    stand_ins_used.append(name)


def is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def load() -> types.SimpleNamespace:
    """The mixins `ModelTesterMixin`, `GenerationTesterMixin`, `ConfigTester`, and `ids_tensor`."""
    package = types.ModuleType("tests")
    package.__path__ = folders()
    sys.modules["tests"] = package
    sys.meta_path.insert(0, RenamingFinder())
    if not is_there("httpx") and is_there("httpx2"):
        sys.modules["httpx"] = importlib.import_module("httpx2")
    # needs a helper module that only a repository checkout has
    absent = [name for name in STAND_INS if name.endswith("test_configuration_utils") or not is_there(name)]
    for name in absent:
        stand_in(name)
    import transformers
    import transformers.utils as utils

    # the configuration tests import the library from a path inside the repository
    original, utils.direct_transformers_import = utils.direct_transformers_import, lambda *_, **__: transformers
    try:
        common = importlib.import_module("tests.test_modeling_common")
        configuration = importlib.import_module("tests.test_configuration_common")
        generation = importlib.import_module("tests.generation.test_utils")
    finally:
        utils.direct_transformers_import = original
    return types.SimpleNamespace(
        ModelTesterMixin=common.ModelTesterMixin,
        GenerationTesterMixin=generation.GenerationTesterMixin,
        ConfigTester=configuration.ConfigTester,
        ids_tensor=common.ids_tensor,
    )


if __name__ == "__main__":
    fetch()
