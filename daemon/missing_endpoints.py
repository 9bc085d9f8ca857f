"""Endpoints of other servers that are not here: their 404 says what is missing, not only that something is."""

from daemon.errors import ApiError

_WHAT: dict[str, str] = {
    "embeddings": "embeddings are",
    "responses": "stored responses are",
    "rerank": "reranking is",
    "score": "scoring is",
    "pooling": "pooling is",
    "classify": "classification is",
    "moderations": "moderation is",
    "images": "image generation is",
    "audio": "audio is",
    "videos": "video is",
    "realtime": "the realtime API is",
    "files": "file storage is",
    "uploads": "file storage is",
    "batches": "the batch API is",
    "fine_tuning": "fine-tuning is",
    "vector_stores": "the vector store API is",
    "assistants": "the assistants API is",
    "threads": "the assistants API is",
    "load_lora_adapter": "LoRA is",
    "messages": "the messages API is",
}


def missing_endpoint(path: str) -> ApiError:
    """The 404 for `path`."""
    name = path.removeprefix("/v1").removeprefix("/v2").strip("/").partition("/")[0]
    if name in _WHAT:
        message = f"{_WHAT[name]} not served here: use /v1/chat/completions or /v1/completions"
        return ApiError(404, message, code="endpoint_not_supported")
    return ApiError(404, f"there is no {path[:200]} here", code="not_found")
