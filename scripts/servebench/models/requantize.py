"""Make a GGUF of another quantization from a GGUF: small models for the quick start, without a compiler or a model hub.

Every tensor that is quantized, F16 or BF16 is dequantized and quantized again; F32 tensors (norms, routers) and tensors
whose rows do not fill whole blocks stay as they are. The result is no better than its source. The same input gives the
same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

FILE_TYPES = {
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": LlamaFileType.MOSTLY_Q4_1,
    "Q5_0": LlamaFileType.MOSTLY_Q5_0,
    "Q5_1": LlamaFileType.MOSTLY_Q5_1,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
    "F16": LlamaFileType.MOSTLY_F16,
}


def requantize(source: Path, target: Path, to: str) -> None:
    """Write `target`: the tensors of `source` as `to` (a key of `FILE_TYPES`), its metadata kept."""
    wanted = GGMLQuantizationType[to]
    block, _ = GGML_QUANT_SIZES[wanted]
    reader = GGUFReader(source)
    writer = GGUFWriter(target, arch=_value(reader, "general.architecture"))
    writer.data_alignment = reader.alignment
    for name, field in reader.fields.items():
        if name in ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture"):
            continue
        value = int(FILE_TYPES[to]) if name == "general.file_type" else field.contents()
        of_array = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=of_array)
    if "general.file_type" not in reader.fields:
        writer.add_file_type(int(FILE_TYPES[to]))

    kinds = [
        wanted if t.tensor_type is not GGMLQuantizationType.F32 and t.shape[0] % block == 0 else t.tensor_type
        for t in reader.tensors
    ]
    for tensor, kind in zip(reader.tensors, kinds, strict=True):
        values, bytes_each = GGML_QUANT_SIZES[kind]
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor_info(
            tensor.name, shape, np.dtype(np.float32), tensor.n_elements // values * bytes_each, raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor, kind in zip(reader.tensors, kinds, strict=True):
        if kind is tensor.tensor_type:
            data = tensor.data
        else:
            data = quantize(dequantize(tensor.data, tensor.tensor_type), kind)
        writer.write_tensor_data(data)
    writer.close()


def _value(reader: GGUFReader, name: str) -> Any:
    field = reader.fields.get(name)
    return field.contents() if field else None
