"""A forest on a bag of words, beside the usual choice for texts: River's multinomial naive Bayes.

python pipelines/bag_of_words.py

`intents.toml` names `model` as its factory: the same pipeline as the model of `streamforest run`.
"""

from __future__ import annotations

import time
from importlib.metadata import version

from river import compose, feature_extraction, metrics, naive_bayes

from streamforest import StreamForestClassifier, datasets


def model() -> compose.Pipeline:
    """A new pipeline. A word that a text does not have is a 0, not a gap: `absent="zero"`."""
    return feature_extraction.BagOfWords(on="text") | StreamForestClassifier(absent="zero", seed=1)


def main() -> None:
    """Score both on 5,000 generated texts, each predicted before it is learned."""
    bayes = feature_extraction.BagOfWords(on="text") | naive_bayes.MultinomialNB()
    print(f"streamforest {version('streamforest')}, river {version('river')}")
    for name, pipeline in (("stream forest", model()), ("multinomial naive Bayes", bayes)):
        accuracy = metrics.Accuracy()
        texts = list(datasets.load("texts", events=5_000).dicts())
        pipeline.predict_one(texts[0][0])
        start = time.perf_counter()
        for x, y in texts:
            accuracy.update(y, pipeline.predict_one(x))
            pipeline.learn_one(x, y)
        speed = len(texts) / (time.perf_counter() - start)
        print(f"{name:24} {accuracy}, {speed:,.0f} events/s")


if __name__ == "__main__":
    main()
