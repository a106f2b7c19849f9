package peer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// errSecret says that a message was not made with our secret, or is damaged.
var errSecret = errors.New("the message is not from a node with the same secret")

// keyring makes the ciphers for pairs of processes.
type keyring struct {
	secret []byte // none: messages are plain

	mu   sync.Mutex
	keys map[way]cipher.AEAD
}

// way is what a key is for: what one process says to another.
type way struct{ use, from, to string }

// maxKeys bounds the ciphers that are kept: processes come and go.
const maxKeys = 4096

func newKeyring(secret []byte) *keyring {
	return &keyring{secret: secret, keys: map[way]cipher.AEAD{}}
}

// overhead is what sealing adds to a message, at the most.
const overhead = 8 + 16

// key returns the cipher for what one process says to another, nil without a secret.
func (k *keyring) key(use, from, to string) (cipher.AEAD, error) {
	if len(k.secret) == 0 {
		return nil, nil
	}
	w := way{use, from, to}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.keys[w]; c != nil {
		return c, nil
	}
	// The lengths keep two pairs of names from running together to the same text.
	info := fmt.Sprintf("twotier peer %s %d %s %d %s", use, len(from), from, len(to), to)
	raw, err := hkdf.Key(sha256.New, k.secret, nil, info, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	c, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if len(k.keys) >= maxKeys {
		clear(k.keys)
	}
	k.keys[w] = c
	return c, nil
}

// counter numbers the messages that one process seals: no number is used twice under a key, as GCM demands. Process names are
// never used twice, so no other process has the keys.
type counter struct{ n atomic.Uint64 }

// seal appends the number of the message and its sealed text to b.
func (c *counter) seal(key cipher.AEAD, b, text, bound []byte) []byte {
	if key == nil {
		return append(b, text...)
	}
	var nonce [12]byte
	binary.BigEndian.PutUint64(nonce[4:], c.n.Add(1))
	return key.Seal(append(b, nonce[4:]...), nonce[:], text, bound)
}

// unseal returns the text of a sealed message, in place.
func unseal(key cipher.AEAD, b, bound []byte) ([]byte, error) {
	if key == nil {
		return b, nil
	}
	if len(b) < overhead {
		return nil, errSecret
	}
	var nonce [12]byte
	copy(nonce[4:], b[:8])
	text, err := key.Open(b[8:8], nonce[:], b[8:], bound)
	if err != nil {
		return nil, errSecret
	}
	return text, nil
}
