"""XLNet and BERT backbones, written with the operations of `keras.ops`.

"The released code" is the authors' code, https://github.com/zihangdai/xlnet.
"""
