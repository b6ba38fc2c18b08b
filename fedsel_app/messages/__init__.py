"""Messages: each instruction of the server and each answer of a client, typed, in scalars that Flower can carry.

==============  ====================  ===============  ==============  ======================================
Flower message  instruction           sent with it     answer          sent with it
==============  ====================  ===============  ==============  ======================================
query           EnrolInstruction                       EnrolAnswer
train           TrainInstruction      global model     TrainAnswer     update as a `wire` payload, see `clients`
train           CalibrateInstruction  global model                     BatchNorm statistics, float32 (B,)
evaluate        ProbeInstruction      global model     EvaluateAnswer
evaluate        LocalTestInstruction  global model     EvaluateAnswer
==============  ====================  ===============  ==============  ======================================

A field's name is its key in Flower's config, properties or metrics, and no other package names these keys. The server
sends instructions, and clients send answers. When a client's answer is read, the type and range of each value are
checked.
"""
