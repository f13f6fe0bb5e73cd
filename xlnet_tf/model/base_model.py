"""Base class of the backbones and of every task, for Keras.

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
    """Base of the models: files, copies, compiled functions and exports.

    Files and copies preserve frozen layers, quantized layers and adapters
    (LoRA). `fit`, `evaluate` and `predict` compile again after a change of
    `computation`.
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)
        # No dict: TensorFlow would look for it in checkpoints.
        self._compiled_for = types.SimpleNamespace()

    def __call__(self, *args, **kwargs):
        refuse_arguments(kwargs)
        self.checked(args[0] if args else kwargs.get("features"))
        return super().__call__(*args, **kwargs)

    def checked(self, x):
        """Check features or a data set; see `check_values`, `check_data_set`.

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
        """Input features of `output`: dict of str to keras.Input."""
        return {
            name: keras.Input(spec.shape[1:], dtype=spec.dtype, name=name)
            for name, spec in self.input_signature().items()
        }

    @property
    def inputs(self):
        """list of the tensors of `input`."""
        return list(self.input.values())

    @property
    def output(self):
        """The symbolic outputs of a call on `input`: dict or KerasTensor.

        A list of those of another call, where that gave more of them, as with
        targets: by this, Keras counts the tensors of a call in a functional
        model.
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
        """list of the tensors of `output`."""
        return keras.tree.flatten(self.output)

    def __dir__(self):
        # TensorFlow reads every name of this list when it saves a model, and
        # `output` calls the model.
        hidden = "output", "outputs", "_output_of_input"
        return [x for x in super().__dir__() if x not in hidden]

    @property
    def input_dtype(self):
        """str, the type of `token_ids`, which Keras writes into exports."""
        return "int32"

    def build(self, input_shape=None):
        """Do nothing: the config fixes every shape."""

    def get_build_config(self):
        """None: the config fixes every shape."""

    def finish_layers(self):
        """Apply `trainable=False` of the constructor to layers made after it.

        A subclass that makes layers after its base class calls it again.

        Returns:
            bool, whether the surrounding `keras.RematScope` recomputes the
            model.
        """
        if not self.trainable:
            set_trainable(self, False)
        return leave_scope(self)

    def computation(self):
        """tuple of the state that compiled functions treat as constant."""
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
        """`keras.Model.quantize`, to integers.

        Args:
            mode, config, kwargs: see there.

        Raises:
            ValueError: if the mode is "float8", which the token embedding
                does not support.
        """
        if mode == "float8":
            raise ValueError(
                "a model cannot be quantized to float8, which its token "
                'embedding does not support. Give "int8" or "int4".'
            )
        super().quantize(mode, config=config, **kwargs)

    def default_lora_layer_names(self):
        """list of str, all layers that `enable_lora` can adapt."""
        layers = adaptable_layers(getattr(self, "backbone", self))
        return list(dict.fromkeys(layer.name for layer in layers.values()))

    def enable_lora(
        self,
        rank: int,
        target_layer_names: list[str] | None = None,
        alpha: float | None = None,
    ) -> None:
        """Freeze the backbone and add adapters to its dense layers.

        Kernels are then kernel + alpha / rank * a @ b
        (https://arxiv.org/abs/2106.09685); b is 0 at first, so that outputs do
        not change. A task's head stays trainable. Call it before `compile`, in
        the scope of the model's strategy if it has one.

        Args:
            rank: int, length of the axis between a and b.
            target_layer_names: list of str, names of the layers to adapt, or
                None (default) for `default_lora_layer_names()`.
            alpha: float, or None (default) for the rank.

        Raises:
            ValueError: if the model has adapters, or an argument is wrong.
        """
        if target_layer_names is None:
            target_layer_names = self.default_lora_layer_names()
        backbone = getattr(self, "backbone", self)
        enable_lora(backbone, rank, target_layer_names, alpha)

    def save_lora_weights(self, filepath: str | os.PathLike) -> None:
        """Write the adapters, and the head of a task.

        Args:
            filepath: str or path, ending in ".lora.h5".

        Raises:
            ValueError: if there are no adapters, or the path has another
                ending.
        """
        save_adapters(self, filepath)

    def load_lora_weights(self, filepath: str | os.PathLike) -> None:
        """Load a file of `save_lora_weights`; enable LoRA if it is off.

        Args:
            filepath: str or path. A task loads its head too; its
                `backbone.load_lora_weights` loads only the adapters.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged, or was trained for another config,
                another head or other weights of the backbone.
        """
        load_adapters(self, filepath)

    def without_lora(self):
        """A copy of the model whose adapters are merged into its kernels.

        No layer of its backbone is frozen.

        Returns:
            A model of this class.
        """
        config = config_without_lora(self.get_config())
        copy = type(self).from_config(config)
        copy_merged(self, copy)
        return copy

    def input_signature(self):
        """Features of an export: dict of str to keras.InputSpec."""
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
        """`keras.Model.export`, by default with `input_signature()`.

        Args:
            filepath, format, verbose, kwargs: see there.
            input_signature: features of the exported model. Default: int32
                `token_ids`, `segment_ids` and `padding_mask` of any B and T,
                and the task's own; no memories. For raw strings see
                `saved_models.export_model`.
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
                # A SavedModel returns tensors by name, no tuples.
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
        """Make the model from a dict of arguments, see `get_config`."""
        return cls(**arguments)
