"""XLNet in Keras' operations alone.

"Released" means the authors' code, https://github.com/zihangdai/xlnet.
"""
