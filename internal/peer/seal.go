package peer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// errSecret means that a message was sealed with another secret, or is damaged.
var errSecret = errors.New("the message is not from a node with the same secret")

// keyring derives and caches the ciphers for pairs of processes.
type keyring struct {
	mu      sync.Mutex
	secrets [][]byte // the first one seals, any opens; if empty, messages are plain
	keys    map[cipherID]cipher.AEAD
}

// cipherID identifies a key: its use, the direction, and the secret.
type cipherID struct{ use, from, to, secret string }

// maxKeys bounds the cached ciphers, because processes and secrets come and go.
const maxKeys = 4096

func newKeyring(secret []byte) *keyring {
	k := &keyring{keys: map[cipherID]cipher.AEAD{}}
	if len(secret) > 0 {
		k.secrets = [][]byte{secret}
	}
	return k
}

// set replaces the secrets. Messages in flight can be read if their secret is among the new ones.
func (k *keyring) set(secrets [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secrets = slices.Clone(secrets)
	clear(k.keys)
}

func (k *keyring) list() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secrets
}

// overhead is the maximum size that sealing adds to a message.
const overhead = 8 + 16

// sealingSecret returns the secret that seals new messages, or nil if there are no secrets. A reply
// is sealed with the secret of its message instead.
func sealingSecret(secrets [][]byte) []byte {
	if len(secrets) == 0 {
		return nil
	}
	return secrets[0]
}

// cipherFor returns the cipher from one process to another under a secret, or nil if there is none.
func (k *keyring) cipherFor(secret []byte, use, from, to string) (cipher.AEAD, error) {
	if len(secret) == 0 {
		return nil, nil
	}
	w := cipherID{use, from, to, string(secret)}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.keys[w]; c != nil {
		return c, nil
	}
	// The lengths make sure that different pairs of names give different texts.
	info := fmt.Sprintf("twotier peer %s %d %s %d %s", use, len(from), from, len(to), to)
	raw, err := hkdf.Key(sha256.New, secret, nil, info, 32)
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

// open decrypts a message from one process to another, perhaps in place. It also returns the secret
// that the message was sealed with.
func (k *keyring) open(use, from, to string, b, bound []byte) (text, secret []byte, err error) {
	secrets := k.list()
	if len(secrets) == 0 {
		return b, nil, nil
	}
	for i, secret := range secrets {
		sealed := b
		if i < len(secrets)-1 {
			sealed = slices.Clone(b) // a failed attempt erases its input
		}
		key, err := k.cipherFor(secret, use, from, to)
		if err != nil {
			return nil, nil, err
		}
		if text, err = unseal(key, sealed, bound); err == nil {
			return text, secret, nil
		}
	}
	return nil, sealingSecret(secrets), errSecret
}

// sealCounter numbers the messages that a process seals. GCM requires that no number is used twice
// under a key. Process names are never reused, so no other process has the same keys.
type sealCounter struct{ n atomic.Uint64 }

// appendNumber appends the number of the next sealed message, if there is a key. The text to seal
// follows it.
func (c *sealCounter) appendNumber(key cipher.AEAD, b []byte) []byte {
	if key == nil {
		return b
	}
	return binary.BigEndian.AppendUint64(b, c.n.Add(1))
}

// seal seals, in place, the text from start on, which follows its number.
func seal(key cipher.AEAD, b []byte, start int, bound []byte) []byte {
	if key == nil {
		return b
	}
	var nonce [12]byte
	copy(nonce[4:], b[start-8:start])
	return key.Seal(b[:start], nonce[:], b[start:], bound)
}

// unseal decrypts a sealed message in place.
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

// Pass returns a pass for a message of size bytes, as text for a header: with it, a process proves
// to a node that it has the secret before the node reads its message. A pass is for a message of
// one length. Without a secret, passes are empty.
//
// An eavesdropper can send another body of that length with a copied pass. That body is no valid
// message, so the node refuses it after reading it.
func (c *Client) Pass(size int) string {
	key, err := c.keys.cipherFor(sealingSecret(c.keys.list()), usePass, c.opt.Self, "")
	if key == nil || err != nil {
		return ""
	}
	b := c.count.appendNumber(key, appendBytes([]byte{version}, c.opt.Self))
	return base64.RawURLEncoding.EncodeToString(seal(key, b, len(b), sizeData(size)))
}

// usePass is the use of the keys for passes. These keys name no receiver: a message for an earlier
// process at the address gets an answer, too.
const usePass = "pass"

// sizeData returns the data that ties a pass to a message of size bytes.
func sizeData(size int) []byte { return binary.AppendUvarint(nil, uint64(size)) }

// errPass means that the sender of a message did not prove to be a node.
var errPass = errors.New("the message comes without a valid pass")

// Admit returns nil if a node with one of the secrets made the pass for a message of that size, or
// if there are no secrets.
func (s *Server) Admit(pass string, size int) error {
	if len(s.keys.list()) == 0 {
		return nil
	}
	if err := s.admit(pass, size); err != nil {
		return s.logRefusal(errPass)
	}
	return nil
}

func (s *Server) admit(pass string, size int) error {
	if size < 0 || len(pass) > 2*maxName {
		return errPass
	}
	raw, err := base64.RawURLEncoding.DecodeString(pass)
	if err != nil {
		return err
	}
	from, rest, err := readSender(raw)
	if err != nil {
		return err
	}
	_, _, err = s.keys.open(usePass, from, "", rest, sizeData(size))
	return err
}
