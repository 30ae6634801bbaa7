"""Inside scikit-learn: a pipeline, and a grid search over nested settings."""

try:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
except ImportError:
    raise SystemExit(print("this example needs scikit-learn: pip install scikit-learn")) from None

import umpteen

train, test = umpteen.load_demo("train").take(slice(2_000)), umpteen.load_demo("test")

pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True), umpteen.XRLinear())
grid = {"xrlinear__tree__branching": [8, 64], "xrlinear__linear__cost": [0.5, 2.0]}
search = GridSearchCV(pipeline, grid, cv=2).fit(train.texts, train.Y)

print("best settings:", search.best_params_)
print("P@1 in cross-validation:", round(search.best_score_, 3))
print("P@1 on the test split:", round(search.score(test.texts, test.Y), 3))
