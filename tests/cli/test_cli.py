"""The command line as a user meets it: one line for a mistake, never a traceback."""

import os
import signal
import subprocess
import sys

import pytest

from agentkv import cli
from agentkv.cli.errors import mistake
from agentkv.models import model_folder


def agentkv(*arguments, **options):
    command = [sys.executable, "-m", "agentkv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def assert_one_line(capsys, code, words):
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nope"], ["No such option", "--nope"]),
        (["nope"], ["No such command", "nope"]),
        (["eval", "--nope"], ["--nope", "agentkv eval --help"]),
        (["eval", "--limit", "many"], ["--limit"]),
        (["eval"], ["--tasks", "--task-file"]),
        (["eval", "--tasks", "vwa75", "--max-steps", "0"], ["--max-steps"]),
        (["models"], ["agentkv models --help"]),
        (["models", "pull"], ["name"]),
        (["models", "pull", "nope"], ["unknown model 'nope'", "smollm2-135m"]),
        (["bench", "latency", "--length", "0"], ["--length"]),
        (["runs", "show"], ["run"]),
        (["chat", "--max-tokens", "0"], ["--max-tokens"]),
        (["serve", "--max-prompt", "0"], ["--max-prompt"]),
        (["serve", "--api-key", ""], ["the API key is empty"]),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(capsys, arguments, words):
    assert_one_line(capsys, cli.run(arguments), words)


def test_settings_of_the_kernels_that_are_not_understood(capsys, monkeypatch):
    monkeypatch.setenv("AGENTKV_KERNELS", "nonsense")
    words = ["AGENTKV_KERNELS='nonsense': it is one of auto, reference, triton"]
    assert_one_line(capsys, cli.run(["bench", "kernels", "--slots", "64", "--batch", "1"]), words)


def test_unknown_model_folder_of_chat(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "hello")
    assert_one_line(capsys, cli.run(["chat", "--model", str(tmp_path)]), ["config.json"])


@pytest.mark.model
@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--policy", "nope"], ["nope", "full"]), (["--policy", "window", "--budget", "1"], ["budget"])],
)
def test_chat_refuses_policies_and_budgets_in_one_line(capsys, monkeypatch, flags, words):
    monkeypatch.setattr("builtins.input", lambda prompt: "hello")
    assert_one_line(capsys, cli.run(["chat", *flags]), words)


def test_help_needs_no_torch_and_shows_examples():
    code = (
        "import sys; from agentkv.cli import run; assert run(['--help']) == 0; assert run(['eval', '--help']) == 0;"
        "heavy = {'torch', 'transformers', 'langchain_core', 'playwright', 'numpy', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "agentkv chat --policy conf-kv --budget 8MiB" in done.stdout
    assert "agentkv eval --tasks vwa75" in done.stdout


def test_module_and_script_are_the_same_command():
    version = agentkv("--version")
    assert version.stdout.startswith("agentkv 0.")
    script = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "agentkv"), "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert script.stdout == version.stdout


def test_no_arguments_show_the_help(capsys):
    assert cli.run([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_a_missing_extra_names_the_install_command():
    found = mistake(ModuleNotFoundError("No module named 'playwright'", name="playwright.async_api"))
    assert found.line == "this command needs playwright: pip install 'agentkv[eval]'"
    assert mistake(ModuleNotFoundError("No module named 'agentkv_typo'", name="agentkv_typo")) is None


def test_errors_of_the_environments_are_mistakes_and_bugs_are_not():
    from agentkv_envs.errors import TaskError

    assert mistake(TaskError("tasks.json", "eval", "is missing")).line == "tasks.json: eval: is missing"
    assert mistake(ValueError("a bug")) is None
    with pytest.raises(ZeroDivisionError):
        _run_raising(ZeroDivisionError())


def _run_raising(error):
    from agentkv.cli.app import app

    def boom():
        raise error

    app.command("boom", hidden=True)(boom)
    try:
        return cli.run(["boom"])
    finally:
        app.registered_commands.pop()


def test_ctrl_c_is_130(capsys):
    assert _run_raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.strip() == "agentkv: interrupted"


def test_a_closed_pipe_is_quiet():
    process = subprocess.Popen(
        [sys.executable, "-m", "agentkv", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


def test_models_list_says_what_is_pulled(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path))
    assert cli.run(["models", "list"]) == 0
    assert "not pulled (93 MB to download)" in capsys.readouterr().out
    model_folder("smollm2-135m").mkdir(parents=True)
    assert cli.run(["models", "list", "--json"]) == 0
    assert '"pulled": true' in capsys.readouterr().out


def test_eval_forwards_every_flag(monkeypatch, tmp_path):
    import agentkv_evals.cli

    seen = []
    monkeypatch.setattr(agentkv_evals.cli, "run_eval", lambda options: seen.append(options) or 1)
    flags = "--tasks vwa75:shopping-* --model m --agent oracle --policy full --policy conf-kv --budget 512"
    flags += f" --budget 8MiB --limit 3 --seed 4 --runs-dir {tmp_path} --name n --max-steps 5 --style vwa"
    flags += " --history official --dtype float32 --weights int8 --step-timeout 7 --fresh --retry-errors --json"
    assert cli.run(["eval", *flags.split()]) == 1
    options = seen[0]
    assert (options.tasks, options.model, options.agent) == ("vwa75:shopping-*", "m", "oracle")
    assert (options.policies, options.budgets) == (("full", "conf-kv"), ("512", "8MiB"))
    assert (options.limit, options.seed, options.runs_dir, options.name) == (3, 4, tmp_path, "n")
    assert (options.max_steps, options.style, options.history, options.dtype) == (5, "vwa", "official", "float32")
    assert options.weights == "int8"
    assert (options.step_timeout_s, options.fresh, options.retry_errors, options.json) == (7, True, True, True)


def test_runs_list_of_an_empty_folder(capsys, tmp_path):
    assert cli.run(["runs", "list", "--runs-dir", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out


@pytest.mark.model
def test_piped_chat_answers_each_line_and_shows_its_kv():
    lines = "/kv\nWhat is the capital of France? Answer briefly.\n\nAnd of Italy?\n/kv\n/quit\nnever read\n"
    done = agentkv("chat", "--max-tokens", "12", input=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The capital of France is Paris.\nThe capital of Italy is Rome.\n"
    first, second = [line for line in done.stderr.splitlines() if line.startswith("[full: KV")]
    assert "reused 0," in first
    assert "reused 47," in second
    assert "say something first" in done.stderr
    assert "policy full, " in done.stderr


@pytest.mark.model
def test_ctrl_c_during_a_reply_ends_the_chat_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "agentkv", "chat", "--max-tokens", "4000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("Write a very long story about a dog.\n")
    process.stdin.flush()
    assert process.stdout.read(5)  # the reply has begun
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read().splitlines()[-1] == "agentkv: interrupted"
