"""Markers of Transformers' own tests."""

MARKERS = (
    "accelerate_tests", "all_flash_attn_test", "executorch_export_test", "flash_attn_3_test", "flash_attn_4_test",
    "flash_attn_test", "generate", "heterogeneity_test", "is_staging_test", "not_device_test", "onnx_export_test",
    "openvino_export_test", "order", "run_first", "torch_compile_test", "torch_export_test",
)  # fmt: skip


def pytest_configure(config):
    for marker in MARKERS:
        config.addinivalue_line("markers", f"{marker}: a marker of Transformers")


def pytest_terminal_summary(terminalreporter):
    import upstream

    if upstream.stand_ins_used:
        terminalreporter.write_line(f"contract: empty stand-ins for {', '.join(upstream.stand_ins_used)}")
