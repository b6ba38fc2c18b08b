"""Architectures of the papers, with torch's default initialisation and no pretrained weights.

The parameter counts below are the sources' own, or follow from the layers that the sources describe. Tests check them.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

Shape = tuple[int, ...]


class Architecture(NamedTuple):
    """A builder, called as build(sample_shape, outputs), and the samples that it takes."""

    build: Callable[[Shape, int], nn.Module]
    samples: Literal["any", "images", "signals"] = "any"
    """Samples of any shape, images (C, H, W) or signals (C, T)."""
    smallest: int = 1
    """Smallest height and width of an image, in pixels."""

    def misfit(self, sample_shape: Shape) -> str | None:
        """Description of the samples that the model needs; None if samples of this shape fit."""
        if self.samples == "images" and (len(sample_shape) != 3 or min(sample_shape[1:]) < self.smallest):
            return f"images of at least {self.smallest}x{self.smallest}"
        if self.samples == "signals" and len(sample_shape) != 2:
            return "signals of shape (channels, values)"
        return None


class Convolution(NamedTuple):
    """A convolution, 2x2 max pooling if it is pooled, and a ReLU."""

    channels: int
    kernel: int
    padding: int = 0
    stride: int = 1
    pooled: bool = True


def _network(
    sample_shape: Shape,
    outputs: int,
    convolutions: Sequence[Convolution] = (),
    hidden: Sequence[int] = (),
    dropout: float = 0.0,
) -> nn.Module:
    """Convolutions, then fully connected layers of `hidden` units, a ReLU after each, dropout, and the output layer."""
    modules: list[nn.Module] = []
    shape = sample_shape
    for layer in convolutions:
        channels, *sides = shape
        modules.append(nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride, layer.padding))
        sides = [(side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in sides]
        if layer.pooled:
            modules.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
        modules.append(nn.ReLU())
        shape = (layer.channels, *sides)
    modules.append(nn.Flatten())
    units = int(np.prod(shape))
    for count in hidden:
        modules += [nn.Linear(units, count), nn.ReLU()]
        units = count
    if dropout:
        modules.append(nn.Dropout(dropout))
    return nn.Sequential(*modules, nn.Linear(units, outputs))


def _linear(sample_shape: Shape, outputs: int) -> nn.Module:
    """y = theta . x, without a bias. For an intercept, FedCVR-Bolt's regression adds a constant 1 to x (Sec. 4.1)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(sample_shape)), outputs, bias=False))


def _logistic(sample_shape: Shape, outputs: int) -> nn.Module:
    """Multinomial logistic regression; 7,850 parameters for MNIST."""
    return _network(sample_shape, outputs)


def _mlp(sample_shape: Shape, outputs: int) -> nn.Module:
    """Two hidden layers of 200 units (FedAvg's 2NN, FedCVR-Bolt's MNIST model); 199,210 parameters for MNIST."""
    return _network(sample_shape, outputs, hidden=(200, 200))


def _cnn(sample_shape: Shape, outputs: int) -> nn.Module:
    return _network(sample_shape, outputs, [Convolution(16, 3, padding=1), Convolution(32, 3, padding=1)], [64])


def _lenet(sample_shape: Shape, outputs: int) -> nn.Module:
    """CNN of NIID-Bench (Li et al. 2022) and of Flower's baseline of that name; 44,426 parameters for MNIST."""
    return _network(sample_shape, outputs, [Convolution(6, 5), Convolution(16, 5)], [120, 84])


def _cnn4(sample_shape: Shape, outputs: int) -> nn.Module:
    """FedAvg's CNN (McMahan et al. 2017), Terraform's 4-layer CNN for FEMNIST; 1,663,370 parameters for MNIST.

    FedCVR-Bolt's model for CIFAR-10 has the same layers; its paper does not give their widths.
    """
    return _network(sample_shape, outputs, [Convolution(32, 5, padding=2), Convolution(64, 5, padding=2)], [512])


def _cnn5(sample_shape: Shape, outputs: int) -> nn.Module:
    """Terraform's 5-layer CNN for CIFAR-10; 122,570 parameters for it.

    The paper gives neither the padding nor the positions of its two poolings. As is usual for a CNN of these widths,
    there is no padding here, and each of the first two convolutions is followed by a pooling.
    """
    convolutions = [Convolution(32, 3), Convolution(64, 3), Convolution(64, 3, pooled=False)]
    return _network(sample_shape, outputs, convolutions, [64])


def _cnn5_wide(sample_shape: Shape, outputs: int) -> nn.Module:
    """Terraform's 5-layer CNN for CIFAR-100; 1,075,044 parameters for it.

    The paper's "fully connected layers (3200/256/128)" are here 3,200 inputs, which the convolutions make of a 32x32
    image without padding, and two layers of 256 and 128 units. With two convolutions and the output layer, these are
    five layers.
    """
    return _network(sample_shape, outputs, [Convolution(64, 5), Convolution(128, 5)], [256, 128])


def _alexnet(sample_shape: Shape, outputs: int) -> nn.Module:
    """AlexNet for 32x32 images; 2,781,514 parameters for 10 classes. Dropout(0.5) as in the authors' code."""
    convolutions = [
        Convolution(64, 3, padding=1, stride=2),
        Convolution(192, 3, padding=1),
        Convolution(384, 3, padding=1, pooled=False),
        Convolution(256, 3, padding=1, pooled=False),
        Convolution(256, 3, padding=1),
    ]
    return _network(sample_shape, outputs, convolutions, [512], dropout=0.5)


class _Residual(nn.Module):
    """x + f(x), or s(x) + f(x) where the shapes differ."""

    def __init__(self, *layers: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.layers(x)  # type: ignore[no-any-return]


def _resnet9(sample_shape: Shape, outputs: int) -> nn.Module:
    """ResNet9; 6,621,540 parameters for 100 classes.

    As in HeteRo-Select's code, a residual block is relu(block(x) + x), and the last pooling takes the maximum.
    """

    def normed(inputs: int, channels: int) -> tuple[nn.Module, nn.Module]:
        return nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def convolution(inputs: int, channels: int, *then: nn.Module) -> nn.Module:
        return nn.Sequential(*normed(inputs, channels), *then, nn.ReLU())

    def residual(channels: int) -> nn.Module:
        block = _Residual(*normed(channels, channels), nn.ReLU(), *normed(channels, channels))
        return nn.Sequential(block, nn.ReLU())

    return nn.Sequential(
        convolution(sample_shape[0], 64),
        convolution(64, 128, nn.MaxPool2d(2)),
        residual(128),
        convolution(128, 256, nn.MaxPool2d(2)),
        convolution(256, 512, nn.MaxPool2d(2)),
        residual(512),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(512, outputs),
    )


def _resnet18(sample_shape: Shape, outputs: int) -> nn.Module:
    """ResNet-18 for small images; 11,173,962 parameters for 10 classes.

    Its first convolution has 3x3 kernels and stride 1, and there is no max pooling. As in HeteRo-Select's code, the
    convolutions have torch's default initialisation, not torchvision's by fan-out.
    """
    from torchvision.models import resnet18

    model: nn.Module = resnet18(num_classes=outputs)
    model.conv1 = nn.Conv2d(sample_shape[0], 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    return model


def _resnet1d18(sample_shape: Shape, outputs: int) -> nn.Module:
    """ResNet-18 with every convolution in one dimension (ISP's ECG model); 3,851,910 parameters for 12 leads, 6 labels.

    ISP does not describe its layers. These are ResNet-18's layers, with kernels of 7 and 3.
    """

    def normed(inputs: int, channels: int, width: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
        convolution = nn.Conv1d(inputs, channels, width, stride, padding=width // 2, bias=False)
        return convolution, nn.BatchNorm1d(channels)

    def block(inputs: int, channels: int) -> nn.Module:
        stride = 1 if inputs == channels else 2
        shortcut = None if inputs == channels else nn.Sequential(*normed(inputs, channels, 1, stride))
        first, second = normed(inputs, channels, 3, stride), normed(channels, channels, 3)
        return nn.Sequential(_Residual(*first, nn.ReLU(), *second, shortcut=shortcut), nn.ReLU())

    stages = ((64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512))
    return nn.Sequential(
        *normed(sample_shape[0], 64, 7, 2),
        nn.ReLU(),
        nn.MaxPool1d(3, 2, padding=1),
        *(block(inputs, channels) for inputs, channels in stages),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(512, outputs),
    )


def _swin_t(sample_shape: Shape, outputs: int) -> nn.Module:
    """Swin-T (Liu et al. 2021) as torchvision builds it; 28,288,354 parameters for 1,000 classes."""
    from torchvision.models import swin_t

    model: nn.Module = swin_t(num_classes=outputs)
    if sample_shape[0] != 3:
        model.get_submodule("features.0")[0] = nn.Conv2d(sample_shape[0], 96, 4, stride=4)  # type: ignore[operator]
    return model


ARCHITECTURES = {
    "linear": Architecture(_linear),
    "logistic": Architecture(_logistic),
    "mlp": Architecture(_mlp),
    "cnn": Architecture(_cnn, "images", 4),
    "lenet": Architecture(_lenet, "images", 16),
    "cnn4": Architecture(_cnn4, "images", 4),
    "cnn5": Architecture(_cnn5, "images", 18),
    "cnn5-wide": Architecture(_cnn5_wide, "images", 16),
    "alexnet": Architecture(_alexnet, "images", 15),
    "resnet9": Architecture(_resnet9, "images", 8),
    "resnet18": Architecture(_resnet18, "images"),
    "resnet1d18": Architecture(_resnet1d18, "signals"),
    "swin-t": Architecture(_swin_t, "images", 4),
}
"""Setting -> architecture."""
