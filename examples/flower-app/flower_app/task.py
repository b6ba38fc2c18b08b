"""Model, data, training and test: plain PyTorch."""

from collections import OrderedDict

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions with BatchNorm, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.output = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x):
        """Scores of the ten digits."""
        return self.output(self.features(x).flatten(1))


def get_weights(net):
    """The model as a list of arrays."""
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net, arrays):
    """Load a list of arrays into the model."""
    pairs = zip(net.state_dict(), arrays, strict=True)
    net.load_state_dict(OrderedDict((name, torch.tensor(array)) for name, array in pairs), strict=True)


def load_data(partition_id, num_partitions):
    """Training and validation data of one client: digits 0, 1, 2 ... are unequally spread over the clients."""
    images, labels = _digits()
    train = np.arange(len(labels)) % 5 != 0
    rng = np.random.default_rng(partition_id)
    favourite = (labels + partition_id) % num_partitions == 0
    mine = train & (favourite | (rng.random(len(labels)) < 0.3 / num_partitions))
    dataset = TensorDataset(images[mine], labels_tensor(labels[mine]))
    held_out = len(dataset) // 5
    split = torch.Generator().manual_seed(partition_id)
    valid, train_part = torch.utils.data.random_split(dataset, [held_out, len(dataset) - held_out], split)
    return DataLoader(train_part, batch_size=16, shuffle=True), DataLoader(valid, batch_size=64)


def load_test_data():
    """The server's test data: every fifth image."""
    images, labels = _digits()
    test = np.arange(len(labels)) % 5 == 0
    return DataLoader(TensorDataset(images[test], labels_tensor(labels[test])), batch_size=128)


def train(net, loader, epochs, lr):
    """Train the model and return its mean loss."""
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    total = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader):
    """Mean loss and accuracy of the model."""
    net.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = net(images)
            loss += nn.functional.cross_entropy(scores, labels, reduction="sum").item()
            correct += (scores.argmax(1) == labels).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)


def labels_tensor(labels):
    """Labels as PyTorch wants them."""
    return torch.tensor(labels, dtype=torch.long)


def _digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images.reshape(-1, 1, 8, 8) / 16.0, dtype=torch.float32), labels
