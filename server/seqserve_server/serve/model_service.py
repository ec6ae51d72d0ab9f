"""``seqserve.v1.ModelService``: lists, loads and unloads models, and lists glossaries."""

import asyncio

from seqserve.v1 import model_pb2 as pb
from seqserve.v1 import model_pb2_grpc
from seqserve_server.artifact.records import Template
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.fronts.shared_versions import Versions
from seqserve_server.front.models.lifecycle import Entry
from seqserve_server.front.overload.memory import AnswerSize
from seqserve_server.front.security.tokens import CALLER
from seqserve_server.front.security.usage import Usage
from seqserve_server.text.glossary import Glossary
from seqserve_server.text.glossary_folder import GlossaryFolder

_ON_CALL = "its first call loads it"


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """Converts between messages and the models of the server."""

    def __init__(self, versions: Versions, glossaries: GlossaryFolder, usage: Usage) -> None:
        self._versions, self._glossaries, self._usage = versions, glossaries, usage
        self._repository = versions.repository

    async def ListModels(
        self, request: pb.ListModelsRequest, call: ServerCall
    ) -> pb.ListModelsResponse:
        """Lists every version, whatever its state, and the pairs of languages if requested."""
        described = map(self._described, self._repository.entries)
        response = pb.ListModelsResponse(models=await asyncio.gather(*described))
        if request.with_pairs:
            # In a thread: models of many languages have tens of thousands of pairs.
            response.pairs.extend(await asyncio.to_thread(self._pairs))
        return response

    async def GetModel(self, request: pb.GetModelRequest, call: ServerCall) -> pb.GetModelResponse:
        """Describes one version."""
        entry = self._repository.find(request.model, request.version)
        return pb.GetModelResponse(model=await self._described(entry))

    async def LoadModel(
        self, request: pb.LoadModelRequest, call: ServerCall
    ) -> pb.LoadModelResponse:
        """Loads a version; answers when it takes calls."""
        entry = await self._versions.load(request.model, request.version)
        return pb.LoadModelResponse(model=self._model(entry))

    async def UnloadModel(
        self, request: pb.UnloadModelRequest, call: ServerCall
    ) -> pb.UnloadModelResponse:
        """Unloads a version; answers when its process has ended."""
        entry = await self._versions.unload(request.model, request.version)
        return pb.UnloadModelResponse(model=self._model(entry))

    async def SetTraffic(
        self, request: pb.SetTrafficRequest, call: ServerCall
    ) -> pb.SetTrafficResponse:
        """Sets the weights by which calls that name no version are shared."""
        entries = await self._versions.set_traffic(request.model, dict(request.weights))
        models = [self._model(entry) for entry in entries]
        return pb.SetTrafficResponse(models=models)

    async def ListGlossaries(
        self, request: pb.ListGlossariesRequest, call: ServerCall
    ) -> pb.ListGlossariesResponse:
        """Lists every glossary, without its entries."""
        glossaries, faults = self._glossaries.listed, self._glossaries.faults
        listed = [_glossary(glossary, faults[glossary]) for glossary in glossaries]
        return pb.ListGlossariesResponse(glossaries=listed)

    async def GetGlossary(
        self, request: pb.GetGlossaryRequest, call: ServerCall
    ) -> pb.GetGlossaryResponse:
        """Returns the entries of one glossary."""
        languages = request.source_language, request.target_language
        glossary = self._glossaries.find(request.glossary, *languages, field="glossary")
        described = _glossary(glossary, self._glossaries.faults[glossary])
        await call.reserve(AnswerSize({"glossary": glossary.num_bytes}), request)
        return pb.GetGlossaryResponse(glossary=described, entries=glossary.entries)

    async def GetUsage(self, request: pb.GetUsageRequest, call: ServerCall) -> pb.GetUsageResponse:
        """Returns the usage of the caller's token name."""
        response, token = pb.GetUsageResponse(name=call.auth_name), CALLER.get()
        quotas = token.quotas if token else ()
        for period in self._usage.periods(call.auth_name) if token else ():
            own = [quota for quota in quotas if quota.period == period.name]
            limits = {f"max_{quota.kind}": quota.limit for quota in own}
            ends_s = int(period.ends.timestamp())
            response.usages.add(period=period.name, ends_s=ends_s, **period.used, **limits)
        return response

    async def _described(self, entry: Entry) -> pb.Model:
        if entry.model is not None:
            await entry.model.engine.newest_stats()
        return self._model(entry)

    def _model(self, entry: Entry) -> pb.Model:
        share = self._repository.share(entry)
        message = pb.Model(
            name=entry.name,
            version=entry.version,
            state=f"MODEL_STATE_{entry.state.name}",
            state_reason=entry.reason or (_ON_CALL if entry.waits_for_call else ""),
            is_default=entry.name == self._repository.default and share > 0.0,
            traffic_share=share,
        )
        if (manifest := entry.manifest) is not None:
            message.precision = manifest.precision
            message.max_source_length = manifest.limits.max_source_length
            message.max_target_length = manifest.limits.max_target_length
            message.vocabulary_size = manifest.architecture.vocabulary_size
            template = manifest.template or Template()
            message.source_languages.extend(sorted(template.source_languages))
            message.target_languages.extend(sorted(template.target_languages))
            message.has_shortlist = manifest.shortlist is not None
            message.description = manifest.description
            message.licence = manifest.licence
        if entry.model is not None:
            message.provider = entry.model.provider.value
            engine, reply = entry.model.engine, entry.model.engine.last_reply
            message.slots = engine.capacity.slots
            message.slots_in_use = reply.slots_in_use
            message.queue_depth = reply.queue_depth
        return message

    def _pairs(self) -> list[pb.LanguagePair]:
        return [
            pb.LanguagePair(
                source_language=source,
                target_language=target,
                models=[leg.model for leg in legs],
                pivot_language=legs[0].target if len(legs) > 1 else "",
            )
            for source, target, legs in self._repository.pairs.all()
        ]


def _glossary(glossary: Glossary, fault: str) -> pb.Glossary:
    return pb.Glossary(
        name=glossary.label.name,
        source_language=glossary.label.source,
        target_language=glossary.label.target,
        entry_count=len(glossary.entries),
        modified_s=glossary.modified_s,
        fault=fault,
    )
