"""Runs the tests of frameworks with this package: python run.py FOLDER.

A plugin of pytest puts a class of the package into the place of one of the framework. Each left out test is listed here
with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from world import Server

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"


@dataclass(frozen=True)
class Suite:
    """The tests of one framework. `left_out` has parts of names of tests that are not run, by reason."""

    package: str
    plugin: str
    tests: tuple[str, ...]
    left_out: dict[str, tuple[str, ...]]
    options: tuple[str, ...] = ()

    def run(self, folder: Path, url: str) -> int:
        """Runs the tests of the installed version, and returns the exit code of pytest."""
        sources = self._sources(folder)
        names = [name for names in self.left_out.values() for name in names]
        command = [sys.executable, "-m", "pytest", "-q", "-p", self.plugin, "-p", "no:cacheprovider", *self.options]
        command += ["-k", " and ".join(f"not {name}" for name in names), *self.tests]
        path = os.pathsep.join(map(str, (SOURCE, HERE, sources)))
        env = {**os.environ, "PALIMPSEST_URL": url, "PYTHONPATH": path}
        return subprocess.run(command, cwd=sources, env=env).returncode

    def _sources(self, folder: Path) -> Path:
        name = f"{self.package.replace('-', '_')}-{version(self.package)}"
        if not (folder / name).exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            wanted = f"{self.package}=={version(self.package)}"
            subprocess.run([*pip, "--no-binary", ":all:", "--dest", str(folder), wanted], check=True)
            with tarfile.open(folder / f"{name}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        return folder / name


SUITES = [
    Suite(
        "openai-agents",
        "openai_agents_plugin",
        (
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/memory/test_session_context_wrapper.py",
            "tests/memory/test_openai_responses_compaction_session.py",
            "tests/memory/test_compaction_model_visibility.py",
            "tests/memory/test_compaction_suffix.py",
            "tests/deferred_session_writes",
            "tests/test_handoff_history_duplication.py",
            "tests/test_hitl_session_scenario.py",
            "tests/test_max_turns.py",
            "tests/test_native_tool_failure_history.py",
            "tests/test_run_impl_resume_paths.py",
            "tests/test_run_state_pending_input.py",
            "tests/test_runner_guardrail_resume.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_batch_failure_history.py",
        ),
        {
            "rows, connections and locks of SQLite": (
                "connections",
                "connection",
                "corrupt",
                "closed_rejects",
                "file_lock",
                "write_lock",
                "rolls_back",
                "post_commit_cancellation",
            ),
        },
    ),
    Suite(
        "langchain",
        "langchain_plugin",
        ("tests/unit_tests/agents",),
        {
            "The pictures of graphs contain a node for the tools of the service.": (
                "snapshot",
                "test_create_agent_diagram",
                "test_create_agent_jump",
                "test_simple_agent_graph",
                "test_agent_graph",
            ),
            "The expected requests have no further tools.": (
                "test_response_format_integration",
                "test_model_request_tools_are_base_tools",
                "test_tools_preserved_across_multiple_middleware",
                "test_on_parsing_failure_all_ignores_max_tools",
                "test_wrap_model_call_narrows_response_format_tools",
            ),
            "The agent has no tools, and the service gives it some.": ("test_jump_to_is_ephemeral",),
            "LangChain does not check tools if a middleware has wrap_tool_call.": (
                "test_dynamic_tool_without_handler_raises_error",
                "test_unknown_tool_raises_error",
            ),
            "A sync call in an event loop, where the tests allow no blocking call.": (
                "(TestAgentMiddlewareHooks and False)",
                "(TestAgentHooksCombined and False)",
                "(test_model_refusal and False)",
            ),
            "Fails without the plugin too.": (
                "test_model_request_initialization_preserves_concurrent_warnings",
                "test_default_model_deprecated_and_missing_langchain_anthropic",
            ),
        },
        ("--benchmark-skip",),
    ),
]


def main(folder: Path) -> int:
    """Runs all suites against one server, and returns the exit code."""
    # The models of LangChain's tests repeat their input, and compare it.
    server = Server(folder / "data", "--set", "policy.snip.tag_turns=false")
    try:
        return max([suite.run(folder, server.url) for suite in SUITES])
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
