"""The emulation notices what a GPU would not say: a missing barrier, a divergent shuffle, a read past the end."""

import os
import re
import subprocess
import sys

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda.emulator import SCHEDULES, Emulator, find_compiler
from capacity.measure.decoder.cuda.source import FOLDER, UNITS

BARRIER = "__syncthreads();"


def barriers():
    """Unit and number of each barrier in the kernels."""
    for unit in UNITS:
        for number in range((FOLDER / f"{unit}.cuh").read_text().count(BARRIER)):
            yield unit, number


def without_barrier(unit, number):
    """Source of the unit without that barrier."""
    text = (FOLDER / f"{unit}.cuh").read_text()
    at = [match.start() for match in re.finditer(re.escape(BARRIER), text)][number]
    return text[:at] + text[at + len(BARRIER) :]


class Damaged(Emulator):
    """An emulated device whose kernels of one unit were changed."""

    def __init__(self, schedule, unit, source):
        super().__init__(schedule)
        self.unit, self.source = unit, source

    def load(self, unit, macros, source=None):
        return super().load(unit, macros, self.source if unit == self.unit else None)


def is_noticed(emulated, shape, batch, unit, source):
    """Whether a schedule fails, gives NaN or other bits than the sound kernels give."""
    cuts = dict.fromkeys(("qkv", "output", "gate_up", "down", "head"), (1, 2))
    sound = emulated(shape, batch, cuts=cuts)[0]
    for schedule in SCHEDULES:
        try:
            damaged = emulated(shape, batch, backend=Damaged(schedule, unit, source), cuts=cuts)[0]
            for _ in range(2):
                damaged.step()
        except CapacityError:
            return True
        if schedule == 0:
            for _ in range(2):
                sound.step()
        if not bool((damaged.logits == sound.logits).all()):
            return True
        if damaged.token.tolist() != sound.token.tolist():
            return True
    return False


@pytest.mark.parametrize(("unit", "number"), list(barriers()))
def test_a_removed_barrier_is_noticed(emulated, small_shape, unit, number):
    source = without_barrier(unit, number)

    assert any(is_noticed(emulated, small_shape(), batch, unit, source) for batch in (2, 5))


def test_a_divergent_shuffle_is_a_deadlock(emulated, small_shape):
    text = (FOLDER / "attention.cuh").read_text()
    damaged = text.replace("sum = lanes_sum<LANES>(sum);", "if (threadIdx.x % 32 != 3) sum = lanes_sum<LANES>(sum);")
    assert damaged != text

    with pytest.raises(CapacityError, match="attention under schedule 0: deadlock"):
        emulated(small_shape(), backend=Damaged(0, "attention", damaged))


STEPS = """
import sys
from capacity.measure.decoder.cuda.emulator import Emulator
from capacity.measure.shape import DecoderShape
from capacity.measure.decoder.cuda.step import CudaDecoder

class Device(Emulator):
    def load(self, unit, macros, source=None):
        changed = open(sys.argv[1]).read() if unit == "matrix" and len(sys.argv) > 1 else None
        return super().load(unit, macros, changed)

for weight_format, batch, schedule in (("int8", 2, 2), ("int8", 5, 0)):  # embedding and head are bf16
    shape = DecoderShape("small", 1, 160, 8, 2, 64, 176, 333, window=24, weight_format=weight_format)
    decoder = CudaDecoder(shape, batch, 64, Device(schedule, sanitize=True), splits=3)
    decoder.set_state([0, 332, 7, 8, 9][:batch], [0, 63, 31, 32, 33][:batch])
    decoder.step()
    assert not decoder.logits.isnan().any()
print("clean")
"""


def run_sanitized(*arguments):
    runtime = subprocess.run(
        [find_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("the compiler has no address sanitizer")
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", STEPS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_sanitizers_find_nothing(emulated):
    done = run_sanitized()

    assert done.stdout.strip() == "clean", done.stderr[-2000:]


def test_sanitizers_find_a_read_past_the_end_of_a_matrix(emulated, tmp_path):
    text = (FOLDER / "matrix.cuh").read_text()
    damaged = text.replace("if (j + u * step < loads) weights", "if (j + u * step <= loads) weights")
    assert damaged != text
    (tmp_path / "matrix.cuh").write_text(damaged)

    assert "heap-buffer-overflow" in run_sanitized(tmp_path / "matrix.cuh").stderr
