"""What the driver refuses is told in one sentence, with the cure where there is one; and which compiler is taken."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda import driver, nvrtc


class Refusing:
    """A driver library that answers every call with one status."""

    def __init__(self, status):
        self.status = status

    def cuGetErrorString(self, status, text):
        ctypes.cast(text, ctypes.POINTER(ctypes.c_char_p))[0] = b"device kernel image is invalid"

    def __getattr__(self, name):
        return lambda *arguments: self.status


@pytest.mark.parametrize(("status", "cure"), [(200, True), (209, True), (222, True), (700, False)])
def test_an_image_of_another_cuda_is_refused_with_its_cure(monkeypatch, status, cure):
    monkeypatch.setattr(driver, "_library", lambda: Refusing(status))
    monkeypatch.setattr(driver, "compiler_version", lambda: "nvrtc 13.1")
    with pytest.raises(CapacityError, match=rf"cuModuleLoadData failed: .* \(code {status}\)") as refused:
        driver._call("cuModuleLoadData")
    assert ("compiled by nvrtc 13.1: use the compiler of the driver's own CUDA" in str(refused.value)) is cure


@pytest.mark.parametrize(("built_for", "first"), [("12.8", "12"), ("13.0", "13"), (None, "13")])
def test_the_compiler_of_the_cuda_of_torch_comes_first(monkeypatch, built_for, first):
    opened = []

    def load(path):
        opened.append(path)
        raise OSError

    monkeypatch.setattr(nvrtc, "_candidates", lambda: ["x/libnvrtc.so.13", "libnvrtc.so.13", "libnvrtc.so.12"])
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", load)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda=built_for)))
    nvrtc._open_first.cache_clear()
    assert nvrtc.find_nvrtc() is None
    assert opened[0].endswith(f".so.{first}")
    assert sorted(opened) == ["libnvrtc.so.12", "libnvrtc.so.13", "x/libnvrtc.so.13"]
    nvrtc._open_first.cache_clear()
