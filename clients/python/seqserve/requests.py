"""Builds the requests of ``seqserve.v1`` from the arguments of calls.

Every function raises :class:`~seqserve.InvalidArgument` for a value that does not fit its field,
and names the field. A field whose argument is optional stays unset if that is None. The client
checks only types; the server checks values.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from enum import Enum
from typing import Any, TypeVar, Unpack

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from seqserve.arguments import BulkSource, GenerateOptions
from seqserve.declarations import DECLARATIONS
from seqserve.errors import invalid_argument
from seqserve.option_values import nearest
from seqserve.v1 import generation_pb2, model_pb2

M = TypeVar("M", bound=Message)

_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "a text",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_INT32: "a whole number that fits 32 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number that fits 32 bits",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number that fits 64 bits",
}
_KINDS_OF_LISTS = {
    "TokenSequence": "a list of lists of texts",
    "Term": "a mapping from texts to texts",
    "WeightsEntry": "a mapping from versions to weights",
}


def generate_request(
    source: str, **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateRequest:
    """Builds the request of Generate and GenerateStream."""
    request = _set_field(generation_pb2.GenerateRequest(), "source", source)
    decoding = generation_pb2.GenerationOptions()
    for name, value in options.items():
        if name not in GenerateOptions.__annotations__:
            raise unknown_option(name, [*GenerateOptions.__annotations__, "timeout_s"])
        if value is not None:
            owner = request if name in request.DESCRIPTOR.fields_by_name else decoding
            if isinstance(value, bool) and owner is decoding:
                # As in transformers, where a rule is True, False or a text.
                word = str(value).lower()
                value = word if word in DECLARATIONS[name].choices else value
            _set_field(owner, name, value)
    if decoding.ListFields():
        request.options.CopyFrom(decoding)
    return request


def unknown_option(name: str, names: Sequence[str]) -> TypeError:
    """Returns the error for an option that is not one of ``names``."""
    near = nearest(name, names, least=len("gen"))
    guess = f"did you mean {near}? " if near else ""
    return TypeError(f"unknown option {name!r}; {guess}seqserve.GenerateOptions lists them")


def with_source(
    template: generation_pb2.GenerateRequest, source: str
) -> generation_pb2.GenerateRequest:
    """Builds the request of a source from the request without it."""
    request = generation_pb2.GenerateRequest()
    request.CopyFrom(template)
    return _set_field(request, "source", source)


def with_sources(
    template: generation_pb2.GenerateRequest, sources: Sequence[str]
) -> generation_pb2.GenerateBatchRequest:
    """Builds the request of a batch from the request of each of its sources without it."""
    request = generation_pb2.GenerateBatchRequest(
        model=template.model, version=template.version, priority=template.priority
    )
    if template.HasField("options"):
        request.options.CopyFrom(template.options)
    return _set_field(request, "sources", sources)


def generate_bulk_request(
    template: generation_pb2.GenerateRequest, id_: int, source: BulkSource
) -> generation_pb2.GenerateBulkRequest:
    """Builds one request of GenerateBulk from the request without its source.

    Options of the source replace the options of the template.
    """
    request = generation_pb2.GenerateBulkRequest(id=id_, request=template)
    if isinstance(source, str):
        _set_field(request.request, "source", source)
        return request
    if not (isinstance(source, tuple | list) and len(source) == 2):
        reason = f"{source!r:.80} is neither a text nor a pair of a text and its options"
        raise invalid_argument("source", reason)
    text, own = source
    changed = generate_request(text, **own)
    # A list would be appended to the list of the template.
    for field, _ in changed.options.ListFields():
        request.request.options.ClearField(field.name)
    request.request.MergeFrom(changed)
    return request


def _builder(kind: type[M], *required: str) -> Callable[..., M]:
    """Returns a function that builds a request from required fields, in order, and others by
    name."""

    def build(*values: Any, **others: Any) -> M:
        request = kind()
        for name, value in zip(required, values, strict=True):
            _set_field(request, name, value)
        for name, value in others.items():
            if name not in request.DESCRIPTOR.fields_by_name:
                raise TypeError(f"unknown option {name!r}")
            if value is not None:
                _set_field(request, name, value)
        return request

    return build


score_request = _builder(generation_pb2.ScoreRequest, "source", "target")
attention_request = _builder(generation_pb2.AttentionRequest, "source")
tokenize_request = _builder(generation_pb2.TokenizeRequest, "text", "is_target")
detokenize_request = _builder(generation_pb2.DetokenizeRequest, "token_ids")
detect_language_request = _builder(generation_pb2.DetectLanguageRequest, "text", "languages")
get_model_request = _builder(model_pb2.GetModelRequest)
load_model_request = _builder(model_pb2.LoadModelRequest)
unload_model_request = _builder(model_pb2.UnloadModelRequest, "version")
set_traffic_request = _builder(model_pb2.SetTrafficRequest, "weights")
get_glossary_request = _builder(model_pb2.GetGlossaryRequest, "glossary")


def _set_field(message: M, name: str, value: Any) -> M:
    holder = getattr(message, name)
    try:
        if isinstance(value, Enum):
            setattr(message, name, _number_of(message, name, value))
        elif isinstance(holder, MutableMapping):
            holder.update(_mapped(value))
        elif isinstance(holder, MutableSequence):
            _extend(message, name, value)
        elif isinstance(value, bool) is isinstance(holder, bool) and not isinstance(value, bytes):
            setattr(message, name, value)
        else:
            # protobuf takes True for 1, bytes for a text and, in some versions, 1 for True.
            raise TypeError
    except UnicodeEncodeError as error:
        reason = f"holds half a character (a lone surrogate) at position {error.start}; send text"
        # A list has taken the elements before it.
        where = f"[{len(holder)}]" if isinstance(value, list | tuple) else ""
        raise invalid_argument(name + where, reason) from None
    except (TypeError, ValueError):
        kind = _kind_of(message, name)
        raise invalid_argument(name, f"{value!r:.80} is not {kind}") from None
    return message


def _number_of(message: Message, name: str, value: Enum) -> int:
    kind = message.DESCRIPTOR.fields_by_name[name].enum_type
    member = kind and kind.values_by_name.get(f"{kind.name.upper()}_{value.name}")
    if not member:
        raise TypeError
    return int(member.number)


def _extend(message: Message, name: str, value: Any) -> None:
    holder, element = getattr(message, name), message.DESCRIPTOR.fields_by_name[name].message_type
    if element is None:
        for each in _listed(value):
            holder.append(each)
    elif element.name == "Term":
        for source, target in _mapped(value):
            holder.add(source=source, target=target)
    else:
        for tokens in _listed(value):
            holder.add(tokens=_listed(tokens))


def _listed(value: Any) -> Sequence[Any]:
    # A text would pass for a list of its characters, and bytes in a list for texts.
    is_text = isinstance(value, str | bytes)
    if is_text or not isinstance(value, Sequence) or bytes in map(type, value):
        raise TypeError
    return value


def _mapped(value: Any) -> Iterable[tuple[Any, Any]]:
    # protobuf would leave out a text that is None.
    if not isinstance(value, Mapping) or None in _listed([*value, *value.values()]):
        raise TypeError
    return value.items()


def _kind_of(message: Message, name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None:
        return _KINDS_OF_LISTS[field.message_type.name]
    if field.enum_type is not None:
        return f"a member of seqserve.{field.enum_type.name}"
    kind = _KINDS[field.cpp_type]
    if not isinstance(getattr(message, name), MutableSequence):
        return kind
    return "a list of texts" if kind == "a text" else f"a list, each of it {kind}"
