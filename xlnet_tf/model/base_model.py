"""Base class of the backbones and the tasks, a keras.Model.

Shapes: B batch, T tokens.
"""

import functools
import os
import types

import keras

from xlnet_tf.model.inputs import check_data_set
from xlnet_tf.model.inputs import check_values
from xlnet_tf.model.inputs import refuse_arguments
from xlnet_tf.model.recomputation import leave_scope
from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.layer_paths import set_trainable
from xlnet_tf.weights.layer_state import STATE_KEYS
from xlnet_tf.weights.layer_state import layer_state
from xlnet_tf.weights.layer_state import restore_layer_state
from xlnet_tf.weights.lora.files import load_adapters
from xlnet_tf.weights.lora.files import save_adapters
from xlnet_tf.weights.lora.model import adaptable_layers
from xlnet_tf.weights.lora.model import config_without_lora
from xlnet_tf.weights.lora.model import copy_merged
from xlnet_tf.weights.lora.model import enable_lora


class BaseModel(keras.Model):
    """Base class of all models: saving, copies, compilation and exports.

    Saved files and copies of a model preserve its frozen layers, quantized
    layers and adapters (LoRA). `fit`, `evaluate` and `predict` compile their
    functions again when the settings that `computation` returns have changed.
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)
        # TensorFlow would track a dict and look for it in checkpoints.
        self._compiled_for = types.SimpleNamespace()

    def __call__(self, *args, **kwargs):
        refuse_arguments(kwargs)
        self.checked(args[0] if args else kwargs.get("features"))
        return super().__call__(*args, **kwargs)

    def checked(self, x):
        """Check the features of a call or a data set, and return them.

        See `check_values` and `check_data_set`.

        Raises:
            ValueError: if features have wrong types or values.
        """
        of_tasks = hasattr(self, "backbone")
        if hasattr(x, "element_spec"):
            return check_data_set(x, self.config, of_tasks)
        check_values(x, self.config, of_tasks)
        return x

    @functools.cached_property
    def input(self):
        """Symbolic features of the model: dict of names to keras.Input."""
        return {
            name: keras.Input(spec.shape[1:], dtype=spec.dtype, name=name)
            for name, spec in self.input_signature().items()
        }

    @property
    def inputs(self):
        """Symbolic features of the model, list of the tensors in `input`."""
        return list(self.input.values())

    @property
    def output(self):
        """Symbolic outputs of a call on `input`: KerasTensor, dict or list.

        If another call, for example with targets, has returned more tensors,
        the output is the list of all tensors of that call: a functional model
        that contains this model finds the number of a call's tensors here.
        """
        of_calls = [node.output_tensors for node in self._inbound_nodes]
        most = max(of_calls, key=len, default=[])
        own = self._output_of_input
        return most if len(most) > len(keras.tree.flatten(own)) else own

    @functools.cached_property
    def _output_of_input(self):
        return self(self.input)

    @property
    def outputs(self):
        """Symbolic outputs of the model, list of the tensors in `output`."""
        return keras.tree.flatten(self.output)

    def __dir__(self):
        # TensorFlow reads every listed attribute when it saves a model, and
        # these attributes would call the model.
        hidden = "output", "outputs", "_output_of_input"
        return [x for x in super().__dir__() if x not in hidden]

    @property
    def input_dtype(self):
        """Type of `token_ids`, str. Keras writes this type into exports."""
        return "int32"

    def build(self, input_shape=None):
        """Do nothing, because the config determines every shape."""

    def get_build_config(self):
        """Return None, because the config determines every shape."""

    def finish_layers(self):
        """Freeze the layers made so far if the model has `trainable=False`.

        If a subclass makes layers after the constructor of its base class, the
        subclass calls this method again. The method also takes the layers out
        of a surrounding `keras.RematScope`; see `leave_scope`.

        Returns:
            bool, whether a surrounding `keras.RematScope` asks to recompute
            the model.
        """
        if not self.trainable:
            set_trainable(self, False)
        return leave_scope(self)

    def computation(self):
        """Return the state that compiled functions treat as constant.

        Returns:
            tuple of settings, such as whether each layer is trainable.
        """
        return tuple(
            (
                layer.trainable,
                layer.quantization_mode,
                getattr(layer, "lora_enabled", False),
            )
            for layer in (self, *layers_by_path(self).values())
        )

    def make_train_function(self, force=False):
        return super().make_train_function(force or self._is_changed("train"))

    def make_test_function(self, force=False):
        return super().make_test_function(force or self._is_changed("test"))

    def make_predict_function(self, force=False):
        force = force or self._is_changed("predict")
        return super().make_predict_function(force)

    def _is_changed(self, function):
        now = self.computation()
        before = getattr(self._compiled_for, function, now)
        setattr(self._compiled_for, function, now)
        return before != now

    def forget_compiled(self):
        """Drop the compiled functions of `fit`, `evaluate` and `predict`."""
        self.train_function = self.test_function = self.predict_function = None

    def quantize(self, mode=None, config=None, **kwargs):
        """Quantize the weights to integers; see `keras.Model.quantize`.

        Args:
            mode, config, kwargs: see `keras.Model.quantize`.

        Raises:
            ValueError: if the mode is "float8", because the token embedding
                does not support it.
        """
        if mode == "float8":
            raise ValueError(
                "a model cannot be quantized to float8, which its token "
                'embedding does not support. Give "int8" or "int4".'
            )
        super().quantize(mode, config=config, **kwargs)

    def default_lora_layer_names(self):
        """Return the names of all layers that `enable_lora` can adapt."""
        layers = adaptable_layers(getattr(self, "backbone", self))
        return list(dict.fromkeys(layer.name for layer in layers.values()))

    def enable_lora(
        self,
        rank: int,
        target_layer_names: list[str] | None = None,
        alpha: float | None = None,
    ) -> None:
        """Freeze the backbone and add LoRA adapters to its dense layers.

        An adapted layer has the kernel `kernel + alpha / rank * a @ b`
        (https://arxiv.org/abs/2106.09685). The matrix b is 0 at first, so
        adding the adapters does not change the outputs. A task's head stays
        trainable. Call this method before `compile`. If the model has a
        distribution strategy, call the method in the strategy's scope.

        Args:
            rank: int, rank of a and b: the length of their common axis.
            target_layer_names: list of str, names of the layers to adapt, or
                None (default) for the names in `default_lora_layer_names()`.
            alpha: float, or None (default) for the value of `rank`.

        Raises:
            ValueError: if the model already has adapters, or an argument is
                wrong.
        """
        if target_layer_names is None:
            target_layer_names = self.default_lora_layer_names()
        backbone = getattr(self, "backbone", self)
        enable_lora(backbone, rank, target_layer_names, alpha)

    def save_lora_weights(self, filepath: str | os.PathLike) -> None:
        """Write the LoRA adapters, and the head of a task, to a file.

        Args:
            filepath: str or path, ending in ".lora.h5".

        Raises:
            ValueError: if the model has no adapters, or the path has a wrong
                ending.
        """
        save_adapters(self, filepath)

    def load_lora_weights(self, filepath: str | os.PathLike) -> None:
        """Load adapters that `save_lora_weights` wrote, and enable LoRA.

        A task loads the adapters and its head. To load only the adapters, call
        `load_lora_weights` of the task's backbone.

        Args:
            filepath: str or path of the file.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is damaged, or if its adapters were trained
                for another config, another head or other backbone weights.
        """
        load_adapters(self, filepath)

    def without_lora(self):
        """Return a copy of the model with the adapters merged into the kernels.

        In the copy no layer of the backbone is frozen.

        Returns:
            A model of this model's class.
        """
        config = config_without_lora(self.get_config())
        copy = type(self).from_config(config)
        copy_merged(self, copy)
        return copy

    def input_signature(self):
        """Return an export's features: dict of names to keras.InputSpec."""
        names = ("token_ids", "segment_ids", "padding_mask")
        return {
            name: keras.InputSpec(shape=(None, None), dtype="int32")
            for name in names
        }

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ):
        """Export the model for serving, by `keras.Model.export`.

        `saved_models.export_model` exports a model that reads raw strings.

        Args:
            filepath, format, verbose, kwargs: see `keras.Model.export`.
            input_signature: features of the exported model. Default: the
                result of the method `input_signature`, which contains int32
                `token_ids`, `segment_ids` and `padding_mask`. A task may add
                other features. B and T may have any value. Memories are not
                included.
        """
        backbone = getattr(self, "backbone", self)
        config = backbone.config
        if input_signature is None:
            input_signature = [
                {
                    key: keras.InputSpec(
                        shape=spec.shape, dtype=spec.dtype, name=key
                    )
                    for key, spec in self.input_signature().items()
                }
            ]
            reads_segments = getattr(self, "segment_length", None)
            if config.memory_length and not reads_segments:
                # A SavedModel returns tensors by name, and cannot return the
                # tuple of memories.
                backbone.config = config.replace(memory_length=0)
        try:
            return super().export(
                filepath,
                format=format,
                verbose=verbose,
                input_signature=input_signature,
                **kwargs,
            )
        finally:
            backbone.config = config

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **layer_state(self),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        state = {k: config.pop(k) for k in STATE_KEYS if k in config}
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        model = cls.from_arguments(config)
        state["trainable"] = config.get("trainable", True)
        restore_layer_state(model, state)
        return model

    @classmethod
    def from_arguments(cls, arguments):
        """Make a model from a dict of the constructor's arguments."""
        return cls(**arguments)
