"""``minfer parse``: a tiny treebank through every command, bad input, interruptions."""

from __future__ import annotations

import gzip
import json
import re
import signal
import sys
import time
import xml.etree.ElementTree as ET
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minfer.cli.parse import train
from minfer.kernels.compiling import jit as _jit
from minfer.parsing import Parser, read_conllu
from minfer.parsing.calibration import arc_probs
from minfer.parsing.conllu import tree_fault
from minfer.parsing.learn import Recipe
from minfer.parsing.model import pack, unpack
from minfer.parsing.stream import Totals, parse_file
from minfer.parsing.tiny import tiny_treebank
from test_cli import call, fails, ok, start
from test_cli import told as said

pytest.importorskip("safetensors")

SMALL = ("--bits", 12, "--tag-bits", 10)
ROW = "{0}\tword\t_\tNOUN\t_\t_\t{1}\tdep\t_\t_\n"


def table(*heads: object) -> str:
    return "".join(ROW.format(k, head) for k, head in enumerate(heads, 1)) + "\n"


def notes(text: str) -> list[str]:
    lines = text.splitlines()
    assert all(line.startswith("minfer: note: ") for line in lines), text
    return [line.removeprefix("minfer: note: ") for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With tiny.conllu and tiny.model."""
    path = tmp_path_factory.mktemp("parsing")
    ok("example", "treebank", "-o", path / "tiny.conllu")
    ok("parse", "train", path / "tiny.conllu", "-o", path / "tiny.model", *SMALL)
    return path


@pytest.fixture
def files(folder: Path) -> tuple[Path, Path]:
    return folder / "tiny.model", folder / "tiny.conllu"


def test_training_tells_what_it_did(files, tmp_path):
    _, tiny = files
    out = tmp_path / "np.model"
    result = call(
        "parse", "train", tiny, "--dev", tiny, "-o", out, *SMALL, "--no-projective", "--no-sib",
        "--epochs", 1, "--tags", "gold", "--rng", 5, "--json",
    )  # fmt: skip
    told = json.loads(result.stdout)
    assert (told["sentences"], told["lifted_arcs"], told["rng"]) == (40, 0, 5)
    assert told["dev"]["uas"] > 90
    assert told["bytes"] == out.stat().st_size
    settings = Parser.load(out).model.settings
    assert (settings.projective, settings.gp, settings.sib, settings.tags) == (
        False, True, False, "gold"
    )  # fmt: skip
    assert "arcs and pairs 2/2: loss" in result.stderr
    others = re.findall(r"(?:tagger|relations) (\d+)/(\d+): loss", result.stderr)
    assert others  # each at the end of its stage, not after the first epoch
    assert all(epoch == epochs for epoch, epochs in others)
    assert "dev UAS" in result.stderr
    people = call("parse", "train", tiny, "--dev", tiny, "-o", out, *SMALL, "--epochs", 0)
    assert "1 crossing arc in 1 sentence" in people.stdout
    assert "UAS" in people.stdout
    assert list(tmp_path.iterdir()) == [out]  # no checkpoint is left
    for name in ("first_epochs", "epochs", "bits", "tag_bits"):
        assert signature(train).parameters[name].default == getattr(Recipe(), name)
    assert [s.forms for s in read_conllu(tiny)] == [s.forms for s in tiny_treebank()]
    shown = call("example", "treebank", "-o", "-").stdout
    assert shown.startswith("# text = The dog sleeps .\n1\t")


def test_the_time_of_training_leaves_compiling_out(files, tmp_path, monkeypatch):
    """It was one number, of which most was compiling."""
    spent, real, train = [0.0], time.perf_counter, Parser.train.__func__

    def compiling(cls, *args: Any, **settings: Any) -> Parser:
        spent[0] += 1000.0
        return train(cls, *args, **settings)

    before = _jit.compiling()
    monkeypatch.setattr(time, "perf_counter", lambda: real() + spent[0])
    monkeypatch.setattr(_jit, "compiling", lambda: before + spent[0])
    monkeypatch.setattr(Parser, "train", classmethod(compiling))
    words = ("parse", "train", files[1], "-o", tmp_path / "m.model", *SMALL)
    told = said(*words)
    assert told["seconds"] < 500.0
    assert told["compile_seconds"] >= 1000.0
    assert re.search(r"compiling or loading\s+kernels 2,\d\d\d s", call(*words).stdout)


def test_an_interrupted_training_goes_on(files, tmp_path, monkeypatch):
    _, tiny = files
    out = tmp_path / "tiny.model"
    words = ("parse", "train", tiny, "-o", out, *SMALL)
    original = Parser.train.__func__

    def interrupted(cls, *args: Any, report: Any, **settings: Any) -> Parser:
        def stop(progress: Any) -> None:
            if progress.stage == "pairs" and progress.epoch == 3:
                raise KeyboardInterrupt
            report(progress)

        return original(cls, *args, report=stop, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "train", classmethod(interrupted))
        result = call(*words)
    assert result.exit_code == 130
    assert "run the same command to resume" in result.stderr
    assert not out.exists()
    fails_with = call(*words[:-4], *SMALL, "--rng", 1)
    assert fails_with.exit_code == 3
    assert "--fresh removes it" in fails_with.stderr
    resumed = call(*words)
    assert "to resume from" in resumed.stderr
    assert "arcs 1/4" not in resumed.stderr  # nothing is learnt twice
    assert "arcs and pairs 2/4" not in resumed.stderr
    assert out.read_bytes() == (tiny.parent / "tiny.model").read_bytes()
    assert not Path(f"{out}.checkpoint").exists()
    (tmp_path / "tiny.model.checkpoint").write_bytes(b"something else")
    assert call(*words).exit_code == 3
    (tmp_path / "bad.conllu").write_text("no treebank")
    refused = call("parse", "train", tmp_path / "bad.conllu", "-o", out, "--fresh")
    assert refused.exit_code == 3
    other = call(*words, "--fresh")
    assert other.exit_code == 3
    assert "not a checkpoint" in other.stderr
    assert Path(f"{out}.checkpoint").read_bytes() == b"something else"


@pytest.mark.parametrize("shape", [(64,), (6, 5)])
def test_weights_are_rounded_line_by_line(shape):
    """To 127 steps of the largest on each line of 16, or row; lines of zeros stay zeros."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=shape).astype(np.float32)
    lines = table.reshape(-1, 16) if len(shape) == 1 else table
    lines[1], lines[2], lines[3, 1:] = 0.0, 1e-9 * lines[2], 0.0
    found = unpack(pack({"t": table}), ["t"])["t"].reshape(lines.shape)
    assert not found[1:3].any()  # 1e-9 is nothing to a float16
    most = np.abs(lines).max(axis=1, keepdims=True)
    kept = [0, *range(3, len(lines))]
    assert (np.abs(found - lines)[kept] <= most[kept] / 250).all()
    assert found[3, 0] == pytest.approx(lines[3, 0], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table(2, 0) + table(2, 1), r"line 4: words 1 -> 2 -> 1 form a cycle"),
        (table("_"), r"line 1: this sentence has no heads"),
        ("", r"no sentence in it"),
        (table(0, 0), r"all have several roots"),
    ],
)
def test_bad_treebanks(tmp_path, text, said):
    path = tmp_path / "bad.conllu"
    path.write_text(text)
    result = call("parse", "train", path, "-o", tmp_path / "bad.model", *SMALL)
    assert result.exit_code == 3
    assert re.search(said, result.stderr), result.stderr
    assert not (tmp_path / "bad.model").exists()
    judged = call("parse", "eval", path, path)
    assert judged.exit_code == 3
    if "several roots" in said:
        assert "--multi-root" in judged.stderr


def test_without_safetensors_nothing_is_trained(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    monkeypatch.setattr("minfer.parsing.parser.Parser.train", None)
    result = call("parse", "train", files[1], "-o", tmp_path / "m.model", *SMALL)
    fails(result, 4, "need safetensors")


def test_broken_sentences_can_be_left_out_of_training(files, tmp_path):
    path = tmp_path / "mixed.conllu"
    path.write_text(files[1].read_text() + table(2, 1) + table(0, 0))
    words = ("parse", "train", path, "-o", tmp_path / "m.model", *SMALL, "--on-error", "skip")
    result = call(*words, "--json")
    told = json.loads(result.stdout)
    assert (told["skipped_broken"], told["skipped_several_roots"]) == (1, 1)
    assert "left out: " in result.stderr
    assert said(*words, "--multi-root")["sentences"] == 41


def test_run_parses_in_order_and_changes_nothing_else(files, tmp_path):
    model, tiny = files
    text = tiny.read_text().replace(
        "3\tsleeps\t_", "3-4\tit's\t_\t_\t_\t_\t_\t_\t_\t_\n3\tsleeps\tL"
    )
    text = text.replace(
        "4\t.\t_\tPUNCT\t_\t_\t3\tpunct\t_\t_", "4\t.\t_\tPUNCT\t_\t_\t3\tpunct\t_\tA=b", 1
    )
    source = tmp_path / "in.conllu.gz"
    source.write_bytes(gzip.compress(text.encode()))
    out = tmp_path / "out.conllu.gz"
    result = call("parse", "run", model, source, "-o", out, "--marginals", "--json")
    told = json.loads(result.stdout)
    assert (told["sentences"], told["words"], told["skipped"]) == (40, 306, 0)
    assert 0 < told["kept"] < told["pairs"]
    [closing] = notes(result.stderr)
    assert closing.startswith("40 sentences, 306 words in ")
    before, after = list(read_conllu(source)), list(read_conllu(out))
    expected = list(Parser.load(model).parse(before, marginals=True))
    assert [str(s) for s in after] == [str(s) for s in expected]
    assert "3-4\tit's" in str(after[0])
    assert after[0].lemmas[2] == "L"
    assert after[0].misc[3].startswith("A=b|ArcProb=")
    assert tree_fault(after[0].heads.tolist()) is None


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_workers_and_pipes_give_the_same(files, tmp_path, workers, monkeypatch):
    """Many parts; the order of the output is that of the input."""
    model, tiny = files
    monkeypatch.setattr("minfer.parsing.stream.PART", 500)
    out = tmp_path / "out.conllu"
    seen: list[Totals] = []
    totals = parse_file(model, tiny, out, workers=workers, progress=seen.append)
    assert len(seen) > 10
    assert seen[-1] == totals
    expected = call("parse", "run", model, "-", stdin=tiny.read_text())
    assert out.read_text() == expected.stdout
    assert [s.forms for s in read_conllu(out)] == [s.forms for s in tiny_treebank()]


def test_text_is_parsed_too(files, tmp_path):
    model, _ = files
    path = tmp_path / "story.txt"
    path.write_bytes(b"The dog sleeps .\r\n\r\nA  cat\tsees the bird .\nA \xff cat .\nShe reads .")
    result = call("parse", "run", model, path)
    sentences = result.stdout.rstrip("\n").split("\n\n")
    assert [s.split("\n")[0] for s in sentences] == [
        "# text = The dog sleeps .", "# text = A cat sees the bird .", "# text = She reads .",
    ]  # fmt: skip
    problem, closing = notes(result.stderr)
    assert "story.txt: line 4: byte 0xff is not UTF-8" in problem
    assert "1 sentence not parsed" in closing
    guessed = call("parse", "run", model, "-", stdin="The dog sleeps .\n")
    assert guessed.stdout == sentences[0] + "\n\n"
    wrong = "1 The the DET _ _ 2 det _ _\n2 dog dog NOUN _ _ 0 root _ _\n"
    result = call("parse", "run", model, "-", stdin=wrong)
    assert (result.exit_code, result.stdout) == (3, wrong + "\n")
    assert "columns are separated by tabs" in result.stderr
    forced = call("parse", "run", model, "-", "--format", "text", stdin=wrong)
    assert forced.stdout.count("# text = ") == 2


def test_one_bad_sentence_never_loses_the_rest(files, tmp_path):
    model, tiny = files
    good = tiny.read_text().split("\n\n")[0] + "\n\n"
    broken = "1\tword\tno columns\n\n"
    long = "".join(ROW.format(k, "_") for k in range(1, 1202)) + "\n"
    cyclic = table(2, 1)  # heads are replaced: what stood there does not matter
    path = tmp_path / "in.conllu"
    path.write_text(good + broken + good + long + cyclic + good)
    result = ok("parse", "run", model, path)
    assert broken in result.stdout
    assert long in result.stdout
    told = notes(result.stderr)
    assert "not parsed: " in told[0]
    assert "in.conllu: line 7: 3 columns instead of 10" in told[0]
    assert "in.conllu: line 15: a sentence of 1,201 words is too long" in told[1]
    assert told[2].startswith("4 sentences, ")
    assert told[2].endswith("2 sentences not parsed")
    parsed = [p for p in result.stdout.split("\n\n") if p.startswith("# text")]
    assert len(parsed) == 3
    assert len(set(parsed)) == 1

    out = tmp_path / "out.conllu"
    fails(call("parse", "run", model, path, "-o", out, "--on-error", "fail"), 3, "line 7")
    assert not out.exists()
    path.write_text(broken * 30)
    none = call("parse", "run", model, path, "-o", out)
    assert none.exit_code == 3
    assert "no sentence could be parsed" in none.stderr
    assert not out.exists()
    path.write_text(good + broken * 30)
    assert "not parsed: 10 more sentences" in call("parse", "run", model, path).stderr
    path.write_text("")
    empty = call("parse", "run", model, path)
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert notes(empty.stderr)[0].startswith("0 sentences, 0 words")


def parsed_by(result: Any) -> list:
    assert result.exit_code == 0, result
    return list(read_conllu(StringIO(result.stdout)))


def test_long_sentences_and_full_inference(files, tmp_path):
    model, _ = files
    path = tmp_path / "long.txt"
    path.write_text(" ".join(["the dog sees a cat and"] * 83) + "\n")
    [long] = parsed_by(call("parse", "run", model, path))
    assert len(long) == 498
    assert tree_fault(long.heads.tolist()) is None
    path.write_text(" ".join(["dog"] * 400) + "\nThe dog sleeps .\n")
    result = call("parse", "run", model, path, "--full")
    [only] = parsed_by(result)
    assert only.forms == ("The", "dog", "sleeps", ".")
    assert "line 1: a sentence of 400 words has too many pairs" in result.stderr
    fails(call("parse", "run", model, path, "--full", "--on-error", "fail"), 4, "line 1")


def test_the_reduction_tags_and_wrong_words(files, tmp_path):
    model, tiny = files
    share = {}
    for words in ((), ("--full",), ("--factor-cost", 0.01), ("--max-divergence", 0.5),
                  ("--max-factors", 3)):  # fmt: skip
        out = tiny.parent / "out.conllu"
        told = json.loads(call("parse", "run", model, tiny, "-o", out, "--json", *words).stdout)
        share[words] = told["kept"] / told["pairs"]
    assert share["--full",] == 1
    assert share["--factor-cost", 0.01] < share[()] < 1
    assert share["--max-factors", 3] * told["pairs"] <= 3 * 40
    both = call("parse", "run", model, tiny, "--full", "--max-factors", 3)
    fails(both, 2, "--full and --max-factors exclude each other")
    path = tmp_path / "plain.txt"
    path.write_text("The dog sleeps .\n")
    result = call("parse", "run", model, path, "--tags", "gold")
    assert result.exit_code == 3
    assert "has no tags" in result.stderr
    fails(
        call("parse", "run", model, tiny, "--tags", "silver"), 2, "--tags must be predicted or gold"
    )
    fails(call("parse", "run", model, tmp_path / "none"), 3, "there is no such file")
    fails(call("parse", "run", tiny, tiny), 3, "not a parser that minfer saved")
    fails(call("parse", "run", model, tiny, "-o", tiny), 2, "would be overwritten")
    fails(call("parse", "run", model, tiny, "--json"), 2, "--json", "--out FILE")
    assert "train" in call("parse").stdout


def test_probabilities_in_misc_are_those_of_the_marginals(files, tmp_path):
    """Also for a parser of trees with crossing arcs; the tree's is exp(score - log Z)."""
    _, tiny = files
    for kind in ((), ("--no-projective", "--no-gp", "--no-sib")):
        model = tmp_path / "kind.model"
        call("parse", "train", tiny, "-o", model, *SMALL, *kind)
        result = call("parse", "run", model, tiny, "--marginals")
        parser = Parser.load(model)
        gold = list(read_conllu(tiny))
        for sentence, answer in zip(parsed_by(result), parser.marginals(gold)):
            heads = sentence.heads
            n = len(heads)
            chosen = answer.probs[heads, np.arange(1, n + 1)]
            assert arc_probs(sentence) == pytest.approx(chosen, abs=6e-5)
            items = [dict(i.split("=") for i in m.split("|")) for m in sentence.misc]
            for k, item in enumerate(items):
                others = np.delete(answer.probs[:, k + 1], heads[k])
                assert float(item["Head2Prob"]) == pytest.approx(others.max(), abs=6e-5)
                assert answer.probs[int(item["Head2"]), k + 1] == pytest.approx(others.max())
            assert ["TreeProb" in item for item in items] == (heads == 0).tolist()
            [tree] = [float(item["TreeProb"]) for item in items if "TreeProb" in item]
            if kind:
                scores = parser.scores(sentence).arcs[heads, np.arange(1, n + 1)].sum()
                assert tree == pytest.approx(np.exp(scores - answer.log_z), abs=6e-5)
            assert 0 < tree <= chosen.min() + 6e-5


def test_ctrl_c_leaves_nothing_behind(files, tmp_path):
    model, tiny = files
    out = tmp_path / "out.conllu"
    process = start("parse", "run", model, "-", "-o", out, "--workers", 2, stdin=-1)
    assert process.stdin is not None
    process.stdin.write(tiny.read_text() * 50)  # more than pipes hold
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), said
    assert list(tmp_path.iterdir()) == []


def test_eval_scores_compares_and_calibrates(files, tmp_path):
    model, tiny = files
    out = tmp_path / "out.conllu"
    call("parse", "run", model, tiny, "-o", out, "--marginals")
    one = said("parse", "eval", tiny, out)
    same = said("parse", "eval", tiny, "--model", model)
    assert one == same
    gold, parsed = list(read_conllu(tiny)), list(read_conllu(out))
    right = np.concatenate([a.heads == b.heads for a, b in zip(gold, parsed)])
    probs = np.concatenate([arc_probs(s) for s in parsed])
    assert one["scores"]["uas"] == pytest.approx(100 * right.mean())
    assert one["calibration"]["brier"] == pytest.approx(((probs - right) ** 2).mean())
    assert sum(one["calibration"]["counts"]) == 306

    result = call("parse", "eval", tiny, out, "--compare", tiny, "--calibration", "-")
    assert "0.9 to 1.0" in result.stdout
    told = said("parse", "eval", tiny, out, "--compare", tiny)
    difference = told["differences"]["uas"]
    assert difference["low"] <= difference["difference"] <= difference["high"] <= 0
    assert told["other"]["uas"] == 100

    fails(call("parse", "eval", tiny, tiny, "--calibration", "-"), 3, "no ArcProb in MISC")
    fails(call("parse", "eval", tiny, "--model", model, "--calibration", "c.pdf"), 2, "in .png")
    fails(call("parse", "eval", tiny), 2, "--model")
    fails(call("parse", "eval", tiny, out, "--full"), 2, "go with --model")
    short = tmp_path / "short.conllu"
    short.write_text(out.read_text().split("\n\n")[0] + "\n\n")
    fails(call("parse", "eval", tiny, short), 3, "more sentences")


@pytest.mark.slow
def test_the_calibration_plot(files, tmp_path):
    pytest.importorskip("matplotlib")
    model, tiny = files
    picture = tmp_path / "calibration.png"
    ok("parse", "eval", tiny, "--model", model, "--calibration", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_show_draws_the_tree_and_writes_a_report(files, tmp_path):
    from test_report import data_of

    model, tiny = files
    picture = tmp_path / "tree.svg"
    result = call("parse", "show", model, tiny, "-n", 27, "--gold", "--svg", picture)
    lines = result.stdout.splitlines()
    assert lines[2] == "──┤ chased"
    assert lines[0] == "    ┌── The"
    root = ET.fromstring(picture.read_text())
    names = {"s": "http://www.w3.org/2000/svg"}
    assert root.find("s:title", names).text.startswith("The cat chased the mouse")
    told = said("parse", "show", model, tiny, "-n", 27)
    opacities = [float(g.get("opacity")) for g in root.findall(".//s:g[@opacity]", names)]
    assert set(np.round(told["probs"], 3)) <= set(opacities)
    assert len(opacities) == 10 + sum(p >= 0.05 for p in told["second_probs"])

    wrong = call("parse", "show", model, tiny, "--svg", tmp_path / "tree.png")
    fails(wrong, 2, "end the name in .svg")
    ok("parse", "show", model, 'The " dog " sees <b> & sleeps .', "--svg", picture)
    ET.fromstring(picture.read_text())
    fails(call("parse", "show", model, tiny, "-n", 41), 2, "fewer than 41 sentences")
    fails(call("parse", "show", model, "missing.conllu"), 2, "there is no file")
    fails(call("parse", "show", model, "The dog sleeps .", "--gold"), 2, "has none")
    fails(call("parse", "show", model, "  "), 2, "no words")
    page = tmp_path / "saw.html"
    result = call(
        "parse", "show", model, tiny, "-n", 27, "--gold", "--max-factors", 5, "--report", page
    )
    assert notes(result.stderr) == [f"wrote {page}"]
    told = data_of(page.read_text())
    step = told["steps"][told["start"]]
    assert (told["parameter"], step["value"], step["kept"]) == ("max_factors", 5, 5)
    assert told["drawing"]["words"][:3] == ["ROOT", "The", "cat"]
    right = [line for line in result.stdout.splitlines() if "heads as in the file" in line]
    assert right == [f"{step['right']} of 10 heads as in the file"]
    ok("parse", "show", model, tiny, "-n", 27, "--report", page)
    assert data_of(page.read_text())["drawing"]["gold"] is None
    fails(call("parse", "show", model, tiny, "--report", "saw.txt"), 2, "end the name in .html")
