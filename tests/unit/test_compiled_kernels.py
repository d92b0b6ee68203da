"""The cache of compiled kernels, and their compilation."""

import os
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from stf_places.places.compiled_kernels import KernelSource, cache_folder, cached, compile_kernel, entry_key

KEY = entry_key("source", "sm_90", "cubin", "NVRTC 13.0")
SOURCE = KernelSource("fill", 'extern "C" __global__ void fill(int* at) { *at = 1; }', "tests")
CONTENT = b"\x7fELF\n and more \x00 bytes\n"


class Build:
    """Give the same content each time, and count."""

    def __init__(self, content=CONTENT):
        self.content, self.calls = content, 0

    def __call__(self):
        self.calls += 1
        return self.content


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "stf_places"


@pytest.fixture
def entry(folder):
    """Make an entry and return its path."""
    cached(KEY, Build(), folder)
    (path,) = folder.iterdir()
    return path


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def is_used(entry):
    """Tell whether an entry was read instead of built; afterwards it is good in any case."""
    build = Build()
    assert cached(KEY, build, entry.parent) == CONTENT
    again = Build(b"other")
    assert cached(KEY, again, entry.parent) == CONTENT and again.calls == 0
    return build.calls == 0


# ---- The folder


def test_the_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "stf_places"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / "home" / ".cache" / "stf_places"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "stf_places"


def test_keys_tell_everything_apart():
    parts = ("source", "sm_90", "cubin", "NVRTC 13.0")
    others = [tuple("x" if i == at else part for i, part in enumerate(parts)) for at in range(4)]
    keys = {entry_key(*given) for given in [parts, *others, ("sources", "m_90", "cubin", "NVRTC 13.0")]}
    assert len(keys) == 6
    assert entry_key(*parts) == KEY and KEY.isalnum()


def test_folder_and_entries_are_the_users_alone(folder, entry):
    assert mode(folder) == 0o700
    assert mode(entry) == 0o600
    assert entry.name == f"{KEY}.kernel"
    assert is_used(entry)


# ---- Entries that do not count


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:-3] + b"?" + data[-2:],
        lambda data: b"",
        lambda data: data.replace(b"kernel 1", b"kernel 2"),
        lambda data: data.replace(b"\n", b"", 1),
        lambda data: data.partition(b"\n")[2],
    ],
    ids=["cut", "longer", "changed", "empty", "format", "header", "no header"],
)
def test_broken_entries_are_built_again(entry, change):
    entry.write_bytes(change(entry.read_bytes()))
    assert not is_used(entry)


def test_an_entry_of_another_name_does_not_count(folder, entry):
    other = entry_key("other source", "sm_90", "cubin", "NVRTC 13.0")
    entry.rename(folder / f"{other}.kernel")
    build = Build(b"other")
    assert cached(other, build, folder) == b"other" and build.calls == 1


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_entries_that_others_can_write_do_not_count(entry, bit):
    entry.chmod(0o600 | bit)
    assert not is_used(entry)
    assert mode(entry) == 0o600


def test_links_and_pipes_do_not_count(entry, tmp_path):
    real = entry.rename(tmp_path / "real")
    entry.symlink_to(real)
    assert not is_used(entry)
    assert not entry.is_symlink() and real.exists()
    entry.unlink()
    os.mkfifo(entry)
    assert not is_used(entry)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_foreign_entries_do_not_count(entry):
    os.chown(entry, 12345, -1)
    assert not is_used(entry)
    assert entry.stat().st_uid == os.geteuid()


# ---- Folders that cannot be used


def refuses(folder):
    """Tell whether nothing is kept, although the content comes."""
    build = Build()
    assert [cached(KEY, build, folder) for _ in range(2)] == [CONTENT, CONTENT]
    return build.calls == 2


def test_without_a_folder_nothing_is_kept():
    assert refuses(None)


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_folder_that_others_can_write_is_not_used(folder, entry, bit):
    folder.chmod(0o700 | bit)
    assert refuses(folder)


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert refuses(tmp_path / "file" / "stf_places")
    assert refuses(tmp_path / "file")


def test_a_foreign_folder_is_not_used(folder, entry, monkeypatch):
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert refuses(folder)


def test_an_entry_that_cannot_be_replaced_is_no_error(entry):
    entry.unlink()
    entry.mkdir()
    assert refuses(entry.parent)
    assert list(entry.parent.iterdir()) == [entry]  # no leftovers


def test_a_failed_build_goes_on_and_keeps_nothing(folder):
    def fail():
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        cached(KEY, fail, folder)
    assert list(folder.iterdir()) == []


def test_many_at_once_agree(folder):
    content = bytes(range(256)) * 4096
    found, start = [], threading.Barrier(8)

    def ask():
        start.wait()
        found.extend(cached(KEY, Build(content), folder) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [content] * 160
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.kernel"]


# ---- Compilation


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_kernel_compiles_once(folder, arch):
    pytest.importorskip("cuda.core", reason="needs cuda.core")
    try:
        code = compile_kernel(SOURCE, arch, folder=folder)
    except ImportError as error:
        pytest.skip(f"needs NVRTC: {error}")
    assert code.startswith(b"\x7fELF")
    assert SOURCE.name.encode() in code
    (path,) = folder.iterdir()
    before = path.stat()
    assert compile_kernel(SOURCE, arch, folder=folder) == code
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_without_cuda_core_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(
        ImportError,
        match=r"^tests compiles a kernel with .*: cuda.core cannot be imported .*'stf-places\[cu12\]' brings both",
    ):
        compile_kernel(SOURCE, "sm_90", "cu12")


def test_an_old_cuda_core_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(Program=object))
    with pytest.raises(ImportError, match=r"this cuda.core has no ProgramOptions; .*stf-places\[cu13\]"):
        compile_kernel(SOURCE, "sm_90", "cu13")


def test_without_nvrtc_the_error_names_the_extra(monkeypatch):
    def missing():
        raise RuntimeError("Failure finding libnvrtc.so")

    core = SimpleNamespace(Program=object, ProgramOptions=object)
    for name, stand_in in (
        ("cuda", SimpleNamespace(__path__=[])),
        ("cuda.core", core),
        ("cuda.bindings", SimpleNamespace(__path__=[])),
        ("cuda.bindings.nvrtc", SimpleNamespace(nvrtcVersion=missing)),
    ):
        monkeypatch.setitem(sys.modules, name, stand_in)
    with pytest.raises(
        ImportError, match=r"NVRTC cannot be loaded \(Failure finding libnvrtc.so\); pip install"
    ):
        compile_kernel(SOURCE, "sm_90")


def test_the_extras_exist():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for extra in ("cu12", "cu13"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{extra} =")]
        assert "cuda-core" in line and "nvidia-cuda-nvrtc" in line
