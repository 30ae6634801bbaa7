"""An empty FastAPI route that takes the same body as ``/v1/predict``: what a server is compared with."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class PredictRequest(BaseModel):
    """The fields of ``/v1/predict``."""

    texts: list[str]
    k: int | None = 5
    threshold: float | None = None
    allowed: list[str] | None = None
    model: str | None = None


@app.get("/readyz")
async def readyz() -> dict[str, str]:
    """Say that it listens."""
    return {"status": "ready"}


@app.post("/v1/predict")
async def predict(ask: PredictRequest) -> dict[str, str]:
    """Do nothing."""
    return {}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
