"""Corrupted surrogate set of ISP (Skorik et al., App. C.8, Table 22): images under strong augmentations.

Each image is augmented once, before the run. The paper does not say whether it draws anew for each evaluation.
"""

from dataclasses import replace

import numpy as np
import torch
from torchvision import transforms

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import Dataset
from fedsel_app.seeds import Purpose, torch_seed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Moments of ImageNet, which normalise the augmented images."""


def corrupted(dataset: Dataset, seed: int) -> Dataset:
    """`dataset`, uint8 RGB images (n, 3, H, W) in its test part, under Table 22; a function of images and seed.

    Raises ConfigError for other samples.
    """
    images = dataset.x_test
    if images.dtype != np.uint8 or images.shape[1:2] != (3,) or images.ndim != 4:
        raise ConfigError(
            f"The 'surrogate-augment' parameter corrupted needs RGB images, but the samples of this data set have "
            f"shape {dataset.sample_shape}. Set surrogate-augment=none."
        )
    augment = transforms.Compose(
        [
            transforms.RandomGrayscale(p=0.8),
            transforms.ColorJitter(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.3),
            transforms.RandomResizedCrop(images.shape[-2:], scale=(0.5, 1.0)),
            transforms.RandomHorizontalFlip(p=0.5),
            transforms.RandomVerticalFlip(p=0.3),
            transforms.GaussianBlur(kernel_size=3, sigma=(0.1, 2.0)),
        ]
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, Purpose.SURROGATE))
        changed = np.stack([augment(torch.from_numpy(image)).numpy() for image in np.array(images)])
    return replace(
        dataset, x_train=changed, x_test=changed, mean=np.array(MEAN, np.float32), std=np.array(STD, np.float32)
    )
