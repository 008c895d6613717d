"""Data sets against real bundles. The labels are what PyTorch and transformers' tokenizer say, read by other code."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import numpy_helper

from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.bundle import Bundle, seal
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.kept import metric_question
from onnxport.verify.report import CheckResult

CheckpointMaker = Callable[..., Path]

WORDS = ["the", "graph", "runtime", "was", "and", "in", "same", "who", "won", "meeting", "one", "two", "blue", "7", ","]
LABELS = {0: "sad", 1: "glad", 2: "calm"}
NAMED = {"id2label": LABELS, "label2id": {name: number for number, name in LABELS.items()}}


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 14))) for _ in range(count)]


def table(path: Path, columns: dict[str, Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def lines(path: Path, columns: dict[str, Sequence[Any]]) -> Path:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@cache
def loaded(checkpoint: Path, head: str) -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    return tokenizer, getattr(transformers, head).from_pretrained(checkpoint).eval()


@torch.inference_mode()
def logits_of(checkpoint: Path, head: str, *texts: Any, name: str = "logits", **options: Any) -> tuple[Any, np.ndarray]:
    tokenizer, model = loaded(checkpoint, head)
    encoded = tokenizer(*texts, return_tensors="pt", **options)
    return encoded, model(**encoded)[name][0].numpy()


class Made:
    """A bundle, the checkpoint it was made from, and a data set that is right by construction."""

    def __init__(self, checkpoint: Path, bundle: Path, dataset: Path) -> None:
        self.checkpoint, self.bundle, self.dataset = checkpoint, bundle, dataset


@pytest.fixture(scope="module")
def reviews(make_checkpoint: CheckpointMaker, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("reviews")
    checkpoint = make_checkpoint("bert", "text-classification", **NAMED)
    recipe = Recipe(suite="quick", variants=("base", "optimized", "ort"))
    export(checkpoint, folder / "bundle", recipe=recipe)
    texts = sentences(60, 0)
    answers = [logits_of(checkpoint, "AutoModelForSequenceClassification", text)[1].argmax() for text in texts]
    assert len(set(answers)) > 1, "a constant classifier would show nothing"
    dataset = table(folder / "reviews.csv", {"text": texts, "label": [LABELS[int(one)] for one in answers]})
    return Made(checkpoint, folder / "bundle", dataset)


def kept(bundle: Bundle, dataset: Path, **options: Any) -> dict[tuple[str | None, str | None], CheckResult]:
    return {(one.variant, one.output): one for one in metric_question(bundle, dataset).verify(**options)}


def asked_of(made: Made, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = run(["verify", str(made.bundle), "--dataset", str(made.dataset), "--suite", "quick", "--json", *arguments])
    document = json.loads(capsys.readouterr().out)
    return code, [check for check in document["checks"] if check["id"] == "metric.kept"]


def test_the_reference_is_base_without_a_source(reviews: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked_of(reviews, capsys)
    assert code == 0
    assert [(one["variant"], one["output"], one["verdict"]) for one in found] == [
        (variant, metric, "pass") for variant in ("optimized", "ort") for metric in ("F1 (macro)", "accuracy")
    ]
    for one in found:
        assert (one["case"], one["examples"], one["reference_score"]) == ("reviews.csv", 60, 1)
        assert one["max_score_loss_allowed"] == 0.01
        assert one["score_loss_low"] <= one["score_loss"] <= one["score_loss_high"]
        assert "of base 1: a loss of" in one["detail"]
        assert one["detail"].endswith("base agrees with PyTorch by the stored report")


def test_the_reference_is_pytorch_with_a_source(reviews: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked_of(reviews, capsys, "--against", str(reviews.checkpoint), "--variant", "base")
    assert code == 0
    assert [(one["variant"], one["score"], one["reference_score"]) for one in found] == [("base", 1, 1)] * 2
    assert "of pytorch 1" in found[0]["detail"]


@pytest.fixture(scope="module")
def broken(reviews: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The largest weights of `optimized` are drawn anew, and the bundle is sealed as if that were right."""
    folder = tmp_path_factory.mktemp("broken") / "bundle"
    shutil.copytree(reviews.bundle, folder)
    path = folder / "model_optimized.onnx"
    model = onnx.load(path)
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim == 2 and values.dtype == np.float32:
            noisy = values + rng.normal(0, 2 * values.std(), values.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(noisy, tensor.name))
    onnx.save(model, path)
    seal(folder, load_bundle(reviews.bundle).manifest)
    return Made(reviews.checkpoint, folder, reviews.dataset)


def test_a_broken_variant_fails_and_the_others_do_not(broken: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked_of(broken, capsys)
    assert code == 1
    assert {(one["variant"], one["verdict"]) for one in found} == {("optimized", "fail"), ("ort", "pass")}
    failed = next(one for one in found if one["verdict"] == "fail")
    assert failed["score_loss"] > 0.1
    assert "of base 1: a loss of" in failed["detail"]
    code, found = asked_of(broken, capsys, "--max-loss", "1")
    assert {one["verdict"] for one in found} == {"pass"}, "the allowed loss is what decides"


def test_a_terminal_shows_the_scores(reviews: Made, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(reviews.bundle), "--dataset", str(reviews.dataset), "--suite", "quick"]
    assert run(arguments) == 0
    assert "optimized on reviews.csv: accuracy 1, of base 1: a loss of 0, allowed 0.01" in capsys.readouterr().out


def test_the_bootstrap_gives_the_same_report_again(reviews: Made) -> None:
    bundle = load_bundle(reviews.bundle)
    assert kept(bundle, reviews.dataset) == kept(bundle, reviews.dataset)


def test_labels_by_number_and_pairs_of_texts(reviews: Made, tmp_path: Path) -> None:
    first, second = sentences(20, 1), sentences(20, 2)
    head = "AutoModelForSequenceClassification"
    answers = [int(logits_of(reviews.checkpoint, head, *pair)[1].argmax()) for pair in zip(first, second, strict=True)]
    dataset = lines(tmp_path / "pairs.jsonl", {"sentence1": first, "sentence2": second, "label": answers})
    (found, *_) = kept(load_bundle(reviews.bundle), dataset, variants=["optimized"]).values()
    assert (found.reference_score, found.score) == (1, 1)


def test_wrong_labels_are_at_chance_and_fail(reviews: Made, tmp_path: Path) -> None:
    texts = sentences(40, 3)
    answers = [logits_of(reviews.checkpoint, "AutoModelForSequenceClassification", one)[1].argmax() for one in texts]
    wrong = [LABELS[(int(one) + 1) % 3] for one in answers]
    found = kept(load_bundle(reviews.bundle), table(tmp_path / "wrong.csv", {"text": texts, "label": wrong}))
    assert {one.verdict for one in found.values()} == {"fail"}
    assert all("base is no better than chance" in one.detail for one in found.values())


def test_only_base_has_nothing_to_be_held_against(reviews: Made) -> None:
    ((key, found),) = kept(load_bundle(reviews.bundle), reviews.dataset, variants=["base"]).items()
    assert (key, found.verdict) == (("base", None), "skip")
    assert "(--against)" in found.detail


def test_a_variant_that_does_not_load_fails(reviews: Made, tmp_path: Path) -> None:
    shutil.copytree(reviews.bundle, tmp_path / "bundle")
    (tmp_path / "bundle" / "model_optimized.onnx").write_bytes(b"no graph")
    found = kept(load_bundle(tmp_path / "bundle"), reviews.dataset)
    assert found["optimized", None].verdict == "fail"
    assert "no answers" in found["optimized", None].detail
    assert found["ort", "accuracy"].verdict == "pass"
    (tmp_path / "bundle" / "model.onnx").write_bytes(b"no graph")
    found = kept(load_bundle(tmp_path / "bundle"), reviews.dataset)
    assert {one.verdict for one in found.values()} == {"fail"}, "nothing shows that the task is kept"
    assert all("base, the reference, gives no answers" in one.detail for one in found.values())


def altered(path: Path, name: str, *nodes: tuple[str, str | None]) -> None:
    """Puts operators behind an output: each with the constant of that value, None for none."""
    model = onnx.load(path)
    graph = model.graph
    for node in graph.node:
        node.output[:] = [f"{name}.0" if value == name else value for value in node.output]
        node.input[:] = [f"{name}.0" if value == name else value for value in node.input]
    for number, (operator, value) in enumerate(nodes):
        constant = f"{name}.constant.{number}"
        if value is not None:
            graph.initializer.append(numpy_helper.from_array(np.array(float(value), dtype=np.float32), constant))
        output = name if number == len(nodes) - 1 else f"{name}.{number + 1}"
        inputs = [f"{name}.{number}", *([] if value is None else [constant])]
        graph.node.append(onnx.helper.make_node(operator, inputs, [output]))
    onnx.save(model, path)


def test_outputs_that_cannot_be_read_fail_and_those_of_the_reference_too(reviews: Made, tmp_path: Path) -> None:
    for variant, told in (("model_optimized.onnx", "no answers"), ("model.onnx", "base, the reference, gives no")):
        folder = tmp_path / variant
        shutil.copytree(reviews.bundle, folder)
        altered(folder / variant, "logits", ("ReduceMax", None))  # [1, 1]: the second row of a batch is not there
        found = kept(load_bundle(folder), reviews.dataset, variants=["optimized"])
        assert {one.verdict for one in found.values()} == {"fail"}
        assert told in found["optimized", None].detail
        assert "seen logits [1, 1]; expected those that text-classification has" in found["optimized", None].detail


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no data set"),
        ("", "holds no examples"),
        ("text,label\n", "holds no examples"),
        ("text,stars\none,5\n", "no column of labels: seen the columns text, stars"),
        ("review,label\none,sad\n", "no column of texts"),
        ("text,label\none,sad\ntwo,happy\n", "the model has no label 'happy'; expected sad, glad or calm"),
        ("text,label\none,sad\ntwo,3\n", "the model has no label '3'"),
        ("text,label\none,sad\n", "has one example"),
        ("text,label\none,sad\ntwo\n", "1 cells, expected 2"),
        ("text,label\none,sad\n,sad\n", "example 2: text is empty"),
    ],
)
def test_a_data_set_that_does_not_fit_is_refused(
    content: str | None, told: str, reviews: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    if content is not None:
        path.write_text(content)
    assert run(["verify", str(reviews.bundle), "--dataset", str(path)]) == 2
    stderr = " ".join(capsys.readouterr().err.split())
    assert told in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["out", "--max-loss", "0.1"], "add --dataset"),
        (["out", "--dataset", "a.csv", "--max-loss", "-1"], "finite number from 0"),
        (["{file}", "--against", "x", "--dataset", "a.csv"], "give the folder of a bundle"),
    ],
)
def test_options_that_make_no_sense(
    arguments: list[str], told: str, reviews: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(reviews.bundle / "model.onnx")
    assert run(["verify", *(one.format(file=file) for one in arguments)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_task_without_a_metric(reviews: Made) -> None:
    bundle = load_bundle(reviews.bundle)
    source = bundle.manifest.source.model_copy(update={"task": "multiple-choice"})
    other = Bundle(bundle.path, bundle.manifest.model_copy(update={"source": source}))
    with pytest.raises(
        DatasetError, match="for multiple-choice, for which there is no metric; there is one for feature"
    ):
        metric_question(other, reviews.dataset)


def test_without_the_extra_its_name_is_told_and_torch_is_not_needed(reviews: Made) -> None:
    script = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {hidden}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from onnxport.exporters.cli.app import run\n"
        f"sys.exit(run(['verify', {str(reviews.bundle)!r}, '--dataset', {str(reviews.dataset)!r}, '--suite', 'quick']))"
    )

    def hiding(*hidden: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script.format(hidden=hidden)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    ended = hiding("sklearn")
    assert ended.returncode == 2, ended.stderr
    assert "pip install 'onnxport[metrics]'" in ended.stderr
    ended = hiding("torch", "transformers", "optimum")
    assert ended.returncode == 0, ended.stderr


# The other tasks, each against PyTorch: whatever is read at the wrong place is not right in all examples.


def made_of(
    folder: Path, checkpoint: Path, dataset: Path, capsys: pytest.CaptureFixture[str], **recipe: Any
) -> list[dict[str, Any]]:
    export(checkpoint, folder / "bundle", recipe=Recipe(suite="quick", variants=("base",), **recipe), verify=False)
    made = Made(checkpoint, folder / "bundle", dataset)
    code, found = asked_of(made, capsys, "--against", str(checkpoint))
    assert code == 0, found
    return found


def answer_variously(checkpoint: Path, words: Sequence[list[str]]) -> None:
    """Moves a token classifier's bias so that it has no favourite: random weights may give every word one class.

    Which class they favour is another on each line of transformers, as the order in which parameters are drawn is.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModelForTokenClassification.from_pretrained(checkpoint).eval()
    with torch.no_grad():
        given = [model(**tokenizer(one, is_split_into_words=True, return_tensors="pt")).logits[0] for one in words]
        model.classifier.bias -= torch.cat(given).mean(dim=0)
    model.save_pretrained(checkpoint)


def test_token_classification_with_padding_on_the_left(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(make_checkpoint("roberta", "token-classification", token_types=False, **NAMED), checkpoint)
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({**settings, "padding_side": "left"}))
    words = [text.split() for text in sentences(12, 4)]
    answer_variously(checkpoint, words)
    labels: list[list[Any]] = []
    for sentence in words:
        encoded, logits = logits_of(checkpoint, "AutoModelForTokenClassification", sentence, is_split_into_words=True)
        of_word = encoded.word_ids(0)
        labels.append([LABELS[int(logits[of_word.index(at)].argmax())] for at in range(len(sentence))])
    assert {label for given in labels for label in given} == set(LABELS.values())
    labels[0][0] = -100  # which is not counted
    dataset = lines(tmp_path / "tags.jsonl", {"tokens": words, "ner_tags": labels})
    found = made_of(tmp_path, checkpoint, dataset, capsys)
    assert [(one["output"], one["reference_score"], one["score"]) for one in found] == [
        ("F1 (macro)", 1, 1),
        ("accuracy", 1, 1),
    ]


@pytest.fixture(scope="module")
def pairs(make_checkpoint: CheckpointMaker, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Texts, and each of them with another word at its end."""
    folder = tmp_path_factory.mktemp("pairs")
    checkpoint = make_checkpoint("bert", "feature-extraction")
    export(checkpoint, folder / "bundle", recipe=Recipe(suite="quick"), verify=False)
    texts = list(dict.fromkeys(f"{text} the graph" for text in sentences(40, 9)))
    columns = {"query": texts, "positive": [f"{text} won" for text in texts]}
    return Made(checkpoint, folder / "bundle", table(folder / "pairs.csv", columns))


def test_retrieval(pairs: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked_of(pairs, capsys, "--against", str(pairs.checkpoint))
    assert code == 0, found
    assert {(one["variant"], one["output"]) for one in found} == {
        (variant, f"recall@{k}") for variant in ("base", "optimized") for k in (1, 5)
    }
    tokenizer, model = loaded(pairs.checkpoint, "AutoModel")
    with pairs.dataset.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with torch.inference_mode():
        vectors = {
            kind: torch.stack([model(**tokenizer(row[kind], return_tensors="pt"))[0][0].mean(dim=0) for row in rows])
            for kind in ("query", "positive")
        }
    cosines = torch.nn.functional.cosine_similarity(vectors["query"][:, None], vectors["positive"][None], dim=-1)
    nearest = cosines.argsort(dim=1, descending=True)
    for one in found:
        k = int(one["output"].removeprefix("recall@"))
        own = torch.arange(len(rows))[:, None]
        assert one["score"] == pytest.approx((nearest[:, :k] == own).any(dim=1).float().mean().item())
        assert one["score"] > one["chance_score"]


@pytest.mark.parametrize(
    "nodes",
    [
        [("Mul", "0"), ("Add", "1")],  # one vector for everything
        [("Mul", "1e-6"), ("Add", "1")],  # but for rounding
        [("Mul", "0")],  # vectors without a direction
        [("Mul", "nan")],
        [("Mul", "inf")],
    ],
)
def test_vectors_that_tell_no_text_from_another_find_nothing(
    pairs: Made, tmp_path: Path, nodes: list[tuple[str, str | None]]
) -> None:
    shutil.copytree(pairs.bundle, tmp_path / "bundle")
    altered(tmp_path / "bundle" / "model_optimized.onnx", "last_hidden_state", *nodes)
    found = kept(load_bundle(tmp_path / "bundle"), pairs.dataset)
    assert {(one.verdict, one.score) for one in found.values()} == {("fail", 0.0)}


def test_one_text_without_a_number_is_not_passed_over(pairs: Made) -> None:
    metric = metric_question(load_bundle(pairs.bundle), pairs.dataset).metric
    count = 2 * metric.examples
    answers = list(np.eye(count)[np.arange(count) % metric.examples])  # each is the vector of its own
    assert [score.value for score in metric.scores(answers)] == [1.0, 1.0]
    wrong = answers.copy()
    wrong[0] = np.full(count, np.nan)  # a query
    assert metric.scores(wrong)[0].value == pytest.approx(1 - 1 / metric.examples)
    wrong = answers.copy()
    wrong[-1] = np.full(count, np.nan)  # among what is searched
    assert metric.scores(wrong)[0].value == 0.0, "it might be nearer than any other"


def test_question_answering(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint("bert", "question-answering")
    questions, contexts, answers = sentences(12, 5), sentences(12, 6), []
    contexts[0] = " ".join([*WORDS, *WORDS, *WORDS, *WORDS])  # longer than the model takes
    head = "AutoModelForQuestionAnswering"
    tokenizer, _ = loaded(checkpoint, head)
    for question, context in zip(questions, contexts, strict=True):
        offsets = tokenizer(question, context, truncation="only_second", return_offsets_mapping=True)["offset_mapping"]
        encoded, start = logits_of(checkpoint, head, question, context, name="start_logits", truncation="only_second")
        _, end = logits_of(checkpoint, head, question, context, name="end_logits", truncation="only_second")
        places = [at for at, part in enumerate(encoded.sequence_ids(0)) if part == 1]
        spans = [(start[i] + end[j], i, j) for i in places for j in places if i <= j < i + 30]
        _, i, j = max(spans)
        answers.append({"text": [context[offsets[i][0] : offsets[j][1]]], "answer_start": [offsets[i][0]]})
    dataset = lines(tmp_path / "squad.jsonl", {"question": questions, "context": contexts, "answers": answers})
    found = made_of(tmp_path, checkpoint, dataset, capsys)
    assert [(one["output"], one["reference_score"], one["score"]) for one in found] == [
        ("F1", 1, 1),
        ("exact match", 1, 1),
    ]


def test_fill_mask_with_fixed_sizes(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint("bert", "fill-mask")
    tokenizer, _ = loaded(checkpoint, "AutoModelForMaskedLM")
    texts = [f"{a} [MASK] {b}" for a, b in zip(sentences(11, 7), sentences(11, 8), strict=True)]
    answers = []
    for text in texts:
        encoded, logits = logits_of(checkpoint, "AutoModelForMaskedLM", text)
        place = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        answers.append(tokenizer.convert_ids_to_tokens(int(logits[place].argmax())))
    texts, answers = zip(*[pair for pair in zip(texts, answers, strict=True) if "##" not in pair[1]], strict=True)
    assert len(texts) > 4
    dataset = table(tmp_path / "cloze.csv", {"text": texts, "label": answers})
    found = made_of(tmp_path, checkpoint, dataset, capsys, static={"batch": 4, "sequence": 48})
    assert [(one["output"], one["reference_score"], one["score"]) for one in found] == [("accuracy", 1, 1)]
