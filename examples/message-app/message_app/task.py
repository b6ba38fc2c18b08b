"""Model, data, training and test: plain PyTorch."""

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


def load_data(partition_id: int, num_partitions: int):
    """Training and validation data of one client: digits 0, 1, 2 ... are unequally spread over the clients."""
    images, labels = _digits()
    places = np.arange(len(labels))
    rng = np.random.default_rng(partition_id)
    favourite = (labels.numpy() + partition_id) % num_partitions == 0
    mine = (places % 5 != 0) & (favourite | (rng.random(len(labels)) < 0.3 / num_partitions))
    train_part, valid_part = places[mine & (places % 4 != 0)], places[mine & (places % 4 == 0)]
    trainloader = DataLoader(TensorDataset(images[train_part], labels[train_part]), batch_size=16, shuffle=True)
    return trainloader, DataLoader(TensorDataset(images[valid_part], labels[valid_part]), batch_size=64)


def load_centralized_dataset():
    """The server's test data: every fifth image."""
    images, labels = _digits()
    return DataLoader(TensorDataset(images[::5], labels[::5]), batch_size=128)


def train(net, trainloader, epochs, lr, device):
    """Train the model and return its mean loss."""
    net.to(device).train()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Mean loss and accuracy of the model."""
    net.to(device).eval()
    criterion = nn.CrossEntropyLoss(reduction="sum")
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (outputs.argmax(1) == labels.to(device)).sum().item()
    return loss / len(testloader.dataset), correct / len(testloader.dataset)


def _digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images.reshape(-1, 1, 8, 8) / 16.0, dtype=torch.float32), torch.tensor(labels)
