"""Print the include folders of cuda.h and nvtx3 from the installed wheels, as a CMake list.

Several versions of a wheel can be on the path, the one of an installed framework among them: the first whose
header is new enough counts.
"""

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST_CUDA = 13010


def folders(distribution: str, header: str) -> Iterator[Path]:
    """Yield the folders that hold ``header`` among the files of the installed versions of a distribution."""
    for found in importlib.metadata.distributions(name=distribution):
        for file in found.files or []:
            if file.as_posix().endswith("/include/" + header):
                path = Path(str(found.locate_file(file)))
                if path.is_file():
                    yield Path(str(path)[: -len(header) - 1])


def cuda_version(folder: Path) -> int:
    """Return the CUDA_VERSION of the folder's cuda.h, 0 if it has none."""
    text = (folder / "cuda.h").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^#define\s+CUDA_VERSION\s+(\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def find_cuda() -> Path:
    """Return the folder of a cuda.h that is new enough, or end the program with what was found."""
    versions = []
    for folder in folders("nvidia-cuda-runtime", "cuda.h"):
        versions.append(cuda_version(folder))
        if versions[-1] >= OLDEST_CUDA:
            return folder
    sys.exit(
        f"building needs a cuda.h of CUDA_VERSION {OLDEST_CUDA} or later: found {versions or 'none'}; "
        "install nvidia-cuda-runtime>=13.1,<14 (a build requirement, see pyproject.toml)"
    )


def find_nvtx() -> Path:
    """Return the folder of nvtx3, or end the program."""
    for folder in folders("nvidia-nvtx", "nvtx3/nvToolsExt.h"):
        return folder
    sys.exit(
        "building needs nvtx3/nvToolsExt.h: install nvidia-nvtx>=13,<14 (a build requirement, see pyproject.toml)"
    )


if __name__ == "__main__":
    print(f"{find_cuda()};{find_nvtx()}")
