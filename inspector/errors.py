"""One tree of errors. The library raises them; the command line turns each into one line and exit code 2."""


class InspectorError(Exception):
    """Anything a user can mend: the message holds the value, what was expected, and the remedy."""


class SourceError(InspectorError):
    """The model cannot be found, fetched or read."""


class ConfigError(InspectorError):
    """The config asks for arithmetic that is not GPT-2's or not implemented."""


class WeightsError(InspectorError):
    """Tensors are missing, unexpected, misshapen or not finite."""


class NumericsError(InspectorError):
    """The forward pass left the numbers its dtype can hold."""


class TextError(InspectorError):
    """The text or the ids cannot be used with this model."""


class ArgumentError(InspectorError):
    """An argument is out of its range or does not fit another one."""


class OutputError(InspectorError):
    """A file or folder cannot be written where it was asked for."""
