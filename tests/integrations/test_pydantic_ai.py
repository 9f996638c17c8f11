"""Pydantic AI with our adapter: its own suite for workspaces."""

import pytest
from conftest import IMAGE
from osb import AsyncClient
from osb_pydantic_ai import OsbWorkspace
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

RESOURCES = {"cpu": "1", "memory": "512Mi"}


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


class TestOsb(WorkspaceBackendSuite):
    @pytest.fixture
    async def made(self):
        made = []
        yield made
        async with AsyncClient() as client:
            for backend in made:
                if backend.ref is not None:
                    await client.sandbox(backend.ref.id).kill()

    @pytest.fixture
    def fresh_backend(self, made, connection):
        def fresh():
            made.append(OsbWorkspace(IMAGE, working_dir="/tmp", resources=RESOURCES))
            return made[-1]
        return fresh

    @pytest.fixture
    def backend(self, fresh_backend):
        return fresh_backend()

    @pytest.fixture
    def attach_backend(self):
        return lambda ref: OsbWorkspace(ref=ref, working_dir="/tmp")

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            async with AsyncClient() as client:
                await client.kill(backend.ref.id)
        return destroy
