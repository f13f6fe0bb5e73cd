"""Compiled functions of a model, kept for the next call."""

import weakref

# model -> {(class, how the model computes, arguments): object}
_KEPT = weakref.WeakKeyDictionary()


def kept(cls, model, tokenizer, *arguments):
    """An object that uses a model, made once for equal arguments.

    Args:
        cls: class of (model, tokenizer, *arguments).
        model: XLNetPretrainer; it may be deleted while the object is kept.
        tokenizer: data_pipeline Tokenizer.
        *arguments: values that can be compared.

    Returns:
        object of the class.
    """
    of_model = _KEPT.setdefault(model, {})
    # What was compiled for a model computes as the model did.
    key = (cls, repr(model.computation()), id(tokenizer), *arguments)
    if key not in of_model:
        of_model[key] = cls(weakref.proxy(model), tokenizer, *arguments)
    return of_model[key]
