"""Every linear recipe on the same rows, and an ensemble of two of them, which is saved as one model."""

import time

import umpteen
from umpteen.models import create

train, test = umpteen.load_demo("train").take(slice(2_000)), umpteen.load_demo("test")

# texts become rows once; all recipes share them
tfidf = umpteen.Tfidf()
X, X_test = tfidf.fit_transform(train.texts), tfidf.transform(test.texts)

models = {}
print(f"{'recipe':<12}{'P@1':>7}{'P@5':>7}{'seconds':>9}  paper")
for recipe in ("xr-linear", "parabel", "bonsai", "plt", "dismec"):
    begun = time.perf_counter()
    model = models[recipe] = create(recipe, {"seed": 1}).fit(X, train.Y)
    seconds = time.perf_counter() - begun
    figures = model.evaluate(X_test, test.Y)
    print(f"{recipe:<12}{figures['P@1']:7.2f}{figures['P@5']:7.2f}{seconds:9.2f}  {model.paper}")

ensemble = umpteen.Ensemble([models["xr-linear"], models["bonsai"]], rule="average")
figures = ensemble.evaluate(X_test, test.Y)
print(f"{'two of them':<12}{figures['P@1']:7.2f}{figures['P@5']:7.2f}")

ensemble.save("votes")
print("saved as one model, merged by", umpteen.load("votes").rule)
