"""Pictures in, pictures out: the model of section 5.1, its tool, and picture files."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    FormatError,
    MinDivergence,
    MinferError,
    MinJoint,
    ModelError,
    RefusedError,
    SettingsError,
    TreeReweighted,
)
from minfer.denoising import Denoised, class_means, denoise, grey_values, picture_model
from minfer.pictures import (
    base_pictures,
    bimodal,
    collection,
    gaussian,
    read_picture,
    write_picture,
)


def noisy(name="house", side=32, sigma=0.3, rng=0):
    clean = base_pictures(side)[name]
    return gaussian(clean, sigma, np.random.default_rng(rng)), clean


# ------------------------------------------------------------------ the model


def test_the_model_is_the_papers():
    """log p(y) = coupling * sum [y_i = y_j] + alpha * sum x_i y_i, written out."""
    x = np.random.default_rng(0).normal(size=(3, 4))
    graph, means = picture_model(x, alpha=2.0, coupling=0.7)
    assert means is None
    centred = x - x.mean()
    for y in np.random.default_rng(1).integers(0, 2, (20, 3, 4)):
        equal = (y[:, 1:] == y[:, :-1]).sum() + (y[1:] == y[:-1]).sum()
        expected = 0.7 * equal + 2.0 * (centred * y).sum()
        assert graph.log_score(y.ravel()) == pytest.approx(expected)


def test_labels_are_scored_by_their_distance():
    x = np.random.default_rng(0).random((3, 4))
    graph, means = picture_model(x, alpha=3.0, coupling=0.7, means=[0.1, 0.4, 0.9])
    for y in np.random.default_rng(1).integers(0, 3, (20, 3, 4)):
        equal = (y[:, 1:] == y[:, :-1]).sum() + (y[1:] == y[:-1]).sum()
        expected = 0.7 * equal - 1.5 * ((x - means[y]) ** 2).sum()
        assert graph.log_score(y.ravel()) == pytest.approx(expected)


def test_two_labels_are_black_and_white_with_level_one_half():
    x, _ = noisy()
    a = denoise(x, alpha=4.0, level=0.5)
    b = denoise(x, alpha=4.0, means=[0.0, 1.0])
    np.testing.assert_allclose(b.marginals[..., 1], a.marginals, atol=2e-3)
    assert (b.labels == a.labels).all()
    full = [
        Exact()(picture_model(x[:6], 4.0, **kind)[0])
        for kind in ({"level": 0.5}, {"means": [0, 1]})
    ]
    np.testing.assert_allclose(full[0].probs, full[1].probs, atol=1e-12)


# ------------------------------------------------------------------ the tool


def test_denoising_cleans():
    for name in base_pictures():
        x, clean = noisy(name, 64)
        found = denoise(x)
        before, after = ((x > x.mean()) == clean).mean(), (found.clean == clean).mean()
        assert after > before, name
        assert after > 0.97, name
        assert found.clean.dtype == bool
        assert found.marginals.shape == found.kept.shape == clean.shape


def test_the_answer_is_that_of_full_inference():
    x, _ = noisy()
    full = BeliefPropagation(tol=1e-8)(picture_model(x)[0])
    reduced = denoise(x, objective=MinJoint(0.03))
    assert 0 < reduced.result.kept_share < 1
    assert np.abs(reduced.result.marginals.probs - full.probs).mean() < 1e-3
    for everything in (denoise(x), denoise(x, objective=MinJoint(0.0))):
        assert everything.result.n_ignored == 0
        assert everything.result.n_forced == 0
        assert everything.kept.min() == 1.0
        np.testing.assert_allclose(everything.result.marginals.probs, full.probs, atol=1e-3)
    with pytest.raises(SettingsError, match="objective"):
        denoise(x, compensate=True)


def test_strips_against_exact_marginals():
    x, _ = noisy("rings", 64)
    strip = x[26:38]
    exact = Exact()(picture_model(strip)[0]).probs
    seed = denoise(strip, objective=MinJoint(np.inf), compensate=False).result.marginals.probs
    plain = denoise(strip, objective=MinDivergence(700), compensate=False).result.marginals.probs
    ours = denoise(strip, objective=MinJoint(0.03)).result.marginals.probs
    errors = [np.abs(p - exact).mean() for p in (seed, plain, ours)]
    assert errors[0] > 3 * errors[1] > 3 * errors[2]
    assert errors[2] < 0.01, "what is left is that of belief propagation itself"
    solved = denoise(strip, solver=Exact(), objective=MinJoint(0.0)).result.marginals.probs
    np.testing.assert_allclose(solved, exact, atol=1e-12)


def test_the_papers_method_and_solver():
    x, _ = noisy()
    found = denoise(x, 5.0, 1.0, MinJoint(0.08), TreeReweighted(tol=1e-4), compensate=False)
    assert found.result.compensation is None
    assert found.result.score == "gain"
    assert 0 < found.result.kept_share < 1


def test_kept_counts_each_pixels_factors():
    x, _ = noisy("letter", 16)
    found = denoise(x, objective=MinDivergence(100))
    kept = np.zeros(16 * 16)
    degree = np.zeros(16 * 16)
    model = found.result.model
    for i in range(256, model.n_factors):
        for v in model.scope(i):
            degree[v] += 1
            kept[v] += found.result.keep[i]
    np.testing.assert_allclose(found.kept.ravel(), kept / degree)


def test_segmenting():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 12)[None, :].repeat(30, axis=0)
    x = np.array([0.1, 0.5, 0.9])[truth] + 0.12 * rng.standard_normal(truth.shape)
    found = denoise(x, labels=3)
    np.testing.assert_allclose(found.means, [0.1, 0.5, 0.9], atol=0.05)
    assert (found.labels == truth).mean() > 0.97
    assert found.marginals.shape == (30, 36, 3)
    np.testing.assert_array_equal(found.clean, found.means[found.labels])
    assert "3 labels" in repr(found)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2), (3, 50)])
def test_any_size(shape):
    x = np.random.default_rng(0).random(shape)
    for options in ({"level": 0.5}, {"means": [0.0, 0.5, 1.0]}):
        found = denoise(x, **options)
        assert found.clean.shape == found.kept.shape == shape
        exact = Exact()(picture_model(x, **options)[0])
        assert np.abs(found.result.marginals.probs - exact.probs).mean() < 0.03


# ------------------------------------------------------------------ what is taken as a picture


def test_kinds_of_numbers():
    x, _ = noisy()
    grey = np.clip(np.round(x * 255), 0, 255)
    bw = x > 0.5
    same = [grey.astype(np.uint8), (grey * 257).astype(np.uint16), grey / 255]
    for image in same:
        np.testing.assert_allclose(grey_values(image), grey / 255, atol=1e-12)
    for image in (bw, bw.astype(np.uint8), bw.astype(int), bw.tolist()):
        np.testing.assert_array_equal(grey_values(image), bw)


@pytest.mark.parametrize(
    ("image", "match"),
    [
        (np.zeros((0, 4)), "empty"),
        (np.zeros(4), r"shape \(H, W\)"),
        (np.zeros((4, 4, 3)), "3 channels"),
        (np.array([[0.0, np.nan]]), r"pixel \(0, 1\) is nan"),
        (np.array([[0.0], [np.inf]]), r"pixel \(1, 0\) is inf"),
        (np.array([["a", "b"]]), "numbers or bools"),
        (np.array([[1j, 0]]), "numbers or bools"),
        (np.full((3, 3), 0.7), "same value"),
    ],
)
def test_what_is_no_picture_is_refused(image, match):
    with pytest.raises(ModelError, match=match):
        denoise(image)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": np.nan},
        {"coupling": np.inf},
        {"level": np.nan},
        {"labels": 1},
        {"labels": 10_000},
        {"means": [0.5]},
        {"means": [0.5, 0.5]},
        {"means": [0.5, np.nan]},
        {"means": [0.0, 1.0], "labels": 2},
        {"means": [0.0, 1.0], "level": 0.5},
        {"refreshes": -1},
    ],
)
def test_settings_are_checked(options):
    with pytest.raises(SettingsError):
        denoise(noisy()[0], **options)


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=40, unique=True), st.integers(2, 5))
@settings(max_examples=60)
def test_class_means_are_a_fixed_point_of_k_means(values, k):
    x = np.array(values)[None, :]
    means = class_means(x, k)
    assert means.shape == (k,)
    assert (np.diff(means) >= 0).all()
    nearest = np.abs(x.ravel()[:, None] - means).argmin(axis=1)
    for label in np.unique(nearest):
        assert x.ravel()[nearest == label].mean() == pytest.approx(means[label], abs=1e-9)


# ------------------------------------------------------------------ pictures and noise


def test_base_pictures_and_noise_are_fixed():
    pictures = base_pictures()
    assert len(pictures) == 4
    for name, picture in pictures.items():
        assert picture.shape == (64, 64), name
        assert 0.15 < picture.mean() < 0.6, name
    a, b = collection(versions=2), collection(versions=3)
    assert len(a.noisy) == len(a.clean) == 8
    np.testing.assert_array_equal(a.noisy[3], b.noisy[4], "the second version of picture 1")
    assert np.std(a.noisy[0] - a.clean[0]) == pytest.approx(0.3, rel=0.05)
    with pytest.raises(MinferError, match="noise"):
        collection("salt")


def test_bimodal_noise():
    clean = np.arange(40_000).reshape(200, 200) % 2 == 1
    x = bimodal(clean, np.random.default_rng(0))
    assert x[~clean].mean() == pytest.approx(0.27, abs=0.005)
    assert x[clean].mean() == pytest.approx(0.485, abs=0.005)
    assert np.std(x[~clean]) == pytest.approx(np.hypot(0.19, 0.03), rel=0.02)


# ------------------------------------------------------------------ picture files


@pytest.fixture
def pil():
    return pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".gif"])
def test_black_and_white_files_come_back(suffix, tmp_path, pil):
    clean = base_pictures(32)["flower"]
    write_picture(tmp_path / f"a{suffix}", clean)
    np.testing.assert_array_equal(read_picture(tmp_path / f"a{suffix}").values, clean)


def test_grey_files_come_back(tmp_path, pil):
    values = np.random.default_rng(0).random((9, 7))
    write_picture(tmp_path / "a.png", values)
    np.testing.assert_allclose(read_picture(tmp_path / "a.png").values, values, atol=1e-5)
    write_picture(tmp_path / "a.bmp", values)
    np.testing.assert_allclose(read_picture(tmp_path / "a.bmp").values, values, atol=2.1e-3)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK"])
def test_every_mode_is_read(mode, tmp_path, pil):
    grey = (np.random.default_rng(0).random((9, 7)) > 0.5).astype(np.uint8) * 255
    image = pil.fromarray(grey)
    if mode == "I;16":
        image = pil.fromarray(grey.astype(np.uint16) * 257)
    elif mode != "L":
        image = image.convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(path)
    loaded = read_picture(path)
    np.testing.assert_allclose(loaded.values, grey / 255, atol=1e-9)
    assert all("transparent" not in note for note in loaded.notes)


def test_transparent_pixels_are_white_and_say_so(tmp_path, pil):
    grey = np.zeros((4, 4), dtype=np.uint8)
    alpha = np.where(np.arange(16).reshape(4, 4) < 4, 0, 255).astype(np.uint8)
    for name, bands in (("la", [grey, alpha]), ("rgba", [grey, grey, grey, alpha])):
        pil.fromarray(np.dstack(bands)).save(tmp_path / f"{name}.png")
        loaded = read_picture(tmp_path / f"{name}.png")
        np.testing.assert_array_equal(loaded.values, alpha == 0)
        assert any("over white" in note for note in loaded.notes)
    palette = pil.fromarray(np.dstack([grey, grey, grey])).convert("P")
    palette.save(tmp_path / "p.png", transparency=int(np.asarray(palette)[0, 0]))
    assert read_picture(tmp_path / "p.png").values.min() == 1.0


def test_floats_are_stretched(tmp_path, pil):
    values = np.linspace(-3, 5, 12).reshape(3, 4).astype(np.float32)
    pil.fromarray(values).save(tmp_path / "a.tif")
    loaded = read_picture(tmp_path / "a.tif")
    np.testing.assert_allclose(loaded.values, (values + 3) / 8, atol=1e-6)
    assert loaded.notes


def test_bad_files(tmp_path, pil):
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(FormatError, match=r"text\.png"):
        read_picture(tmp_path / "text.png")
    write_picture(tmp_path / "a.png", np.random.default_rng(0).random((60, 60)))
    (tmp_path / "half.png").write_bytes((tmp_path / "a.png").read_bytes()[:2000])
    with pytest.raises(FormatError, match="damaged"):
        read_picture(tmp_path / "half.png")
    far = (2**56).to_bytes(8, "little")  # where a BigTIFF says that its directory is
    (tmp_path / "far.tiff").write_bytes(b"II+\0\x08\0\0\0" + far)
    with pytest.raises(FormatError, match=r"far\.tiff"):
        read_picture(tmp_path / "far.tiff")
    frames = [pil.fromarray(np.full((4, 4), v, np.uint8)) for v in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(RefusedError, match="2 frames"):
        read_picture(tmp_path / "a.gif")
    with pytest.raises(FileNotFoundError):
        read_picture(tmp_path / "none.png")
    with pytest.raises(FormatError, match="suffix"):
        write_picture(tmp_path / "a.xyz", np.zeros((2, 2)))


def test_a_declared_size_is_held_against_the_bytes(tmp_path, pil):
    write_picture(tmp_path / "a.png", np.zeros((6, 7)), bits=8)
    data = (tmp_path / "a.png").read_bytes()
    header = b"IHDR" + (9000).to_bytes(4, "big") * 2 + data[24:29]
    crafted = data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:]
    (tmp_path / "a.png").write_bytes(crafted)
    with pytest.raises(RefusedError, match=r"a\.png: 9,000 x 9,000 pixels in \d+ bytes"):
        read_picture(tmp_path / "a.png")


def test_without_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(RefusedError, match=r"pip install 'minfer\[image\]'"):
        read_picture(tmp_path / "a.png")


def test_result_types():
    found = denoise(noisy()[0])
    assert isinstance(found, Denoised)
    assert isinstance(found.result.model, FactorGraph)
    assert "32x32" in repr(found)


# ------------------------------------------------------------------ the commands


@pytest.fixture
def run(tmp_path, monkeypatch, pil):
    """The two commands in an app of their own, called in an empty folder with a noisy picture."""
    import typer
    from typer.testing import CliRunner

    from minfer.cli.denoise import denoise as denoise_command
    from minfer.cli.failures import Commands
    from minfer.cli.paper import paper

    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    app.command("denoise")(denoise_command)
    app.command("paper")(paper)
    monkeypatch.chdir(tmp_path)
    write_picture("noisy.png", np.clip((noisy()[0] + 0.5) / 2, 0, 1))
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_command_writes_what_it_is_asked_for(run):
    words = ["--alpha", 10, "--marginals", "p.png", "--kept", "k.png", "--compare", "full"]
    answer = run("denoise", "noisy.png", "-o", "clean.png", *words)
    assert answer.exit_code == 0, answer.output
    for text in ("32 x 32", "white", "kept", "ignored", "speed-up", "wrote clean.png"):
        assert text in answer.output
    clean = read_picture("clean.png").values
    assert (clean == noisy()[1]).mean() > 0.95
    np.testing.assert_array_equal(read_picture("p.png").values > 0.5, clean)
    assert 0 < read_picture("k.png").values.mean() < 1


def test_command_infers_in_the_whole_model_unless_asked(run):
    answer = run("denoise", "noisy.png", "-o", "clean.png")
    assert answer.exit_code == 0, answer.output
    assert "0 ignored" in answer.output
    assert "divergence" not in answer.output


def test_command_says_where_the_mean_is_a_bad_level(run):
    page = np.ones((32, 32))
    page[8:10, 4:28] = 0.0
    write_picture(
        "page.png", np.clip(page + 0.1 * np.random.default_rng(0).normal(size=(32, 32)), 0, 1)
    )
    answer = run("denoise", "page.png")
    assert answer.exit_code == 0, answer.output
    assert "--level 0.5" in answer.output
    assert "--level" not in run("denoise", "noisy.png").output


def test_settings_that_make_no_sense_are_refused():
    x, _ = noisy()
    for options in (
        {"alpha": -1},
        {"coupling": -1},
        {"level": 128},
        {"alpha": "5"},
        {"solver": "bp"},
    ):
        with pytest.raises(MinferError, match=next(iter(options))):
            denoise(x, **options)
    with pytest.raises(ModelError, match="read_picture"):
        denoise("noisy.png")


def test_command_segments_and_gives_json(run):
    import json

    answer = run("denoise", "noisy.png", "--labels", 3, "--marginals", "p.npy", "--json",
                 "--reduce")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    content = json.loads(next(line for line in answer.output.splitlines() if line[0] == "{"))
    assert len(content["picture"]["means"]) == 3
    assert 0 < content["reduction"]["kept_share"] <= 1
    assert np.load("p.npy").shape == (32, 32, 3)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["none.png"], 3, "none.png"),
        (["noisy.png", "-o", "noisy.png"], 2, "overwritten"),
        (["noisy.png", "-o", "a.png", "--reduce", "--kept", "a.png"], 2, "same file"),
        (["noisy.png", "--kept", "a.png"], 2, "--reduce"),
        (["noisy.png", "-o", "a.xyz"], 3, "suffix"),
        (["noisy.png", "-o", "no/a.png"], 2, "no folder"),
        (["noisy.png", "--means", "0,x"], 2, "list of numbers"),
        (["noisy.png", "--means", "0,1", "--labels", "2"], 2, "neither"),
        (["noisy.png", "--labels", "2", "--level", "0.5"], 2, "--level"),
        (["noisy.png", "--method", "magic"], 2, "--method"),
        (["noisy.png", "--refresh"], 2, "--refresh"),
    ],
)
def test_command_says_what_is_wrong(run, words, code, text):
    answer = run("denoise", *words)
    assert answer.exit_code == code
    assert text in answer.output


def test_the_papers_method_from_the_command_line(run):
    answer = run("denoise", "noisy.png", "--method", "paper", "--solver", "trw", "--strict")
    assert answer.exit_code == 0, answer.output
    assert "the paper's" in answer.output
    assert "TreeReweighted" in answer.output


def test_paper_command(run, monkeypatch):
    from minfer.paper import fig1

    pytest.importorskip("matplotlib")
    assert run("paper", "fig9").exit_code == 2
    assert run("paper", "fig1", "-o", "nowhere").exit_code == 2
    small = (fig1.Setting("main", versions=1, side=16),)
    monkeypatch.setattr(fig1, "settings", lambda quick, data: small)
    answer = run("paper", "fig1", "--quick")
    assert answer.exit_code == 0, answer.output
    assert "comes out" in answer.output
    for name in ("fig1.png", "fig1.csv", "fig1.md"):
        assert (__import__("pathlib").Path(name)).stat().st_size > 1000
