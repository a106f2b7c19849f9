package rulebook

import (
	"bytes"
	"context"
	"errors"

	"twotier.dev/twotier"
)

// file is the content of a file to be stored as a version.
type file struct {
	text    []byte
	who     string
	changed bool // while the node ran
}

// Offer stores the content of the file of rules as a version as soon as the store can be reached,
// as described in the package documentation. changed marks a file that changed while the node runs,
// as opposed to the file of a node that starts. The error is a *[twotier.DocumentError] if the text
// is not valid.
func (k *Keeper) Offer(text []byte, who string, changed bool) error {
	if _, err := k.read(text); err != nil {
		return err
	}
	_ = k.asking.lock(context.Background())
	defer k.asking.unlock()
	k.file = &file{bytes.Clone(text), who, changed}
	return nil
}

// storeFile stores the content of the file, unless it need not become a version. The version in
// force is the newest one.
func (k *Keeper) storeFile(ctx context.Context) error {
	f := k.file
	if !f.changed {
		known, err := k.hasVersionWithText(ctx, f.text)
		if err != nil {
			return err
		}
		if known {
			k.file = nil
			return nil
		}
	}
	doc, err := k.read(f.text)
	if err != nil { // it was read before
		return err
	}
	_, err = k.append(ctx, AnyVersion, twotier.RuleVersion{Text: f.text, Who: f.who}, doc)
	if errors.Is(err, twotier.ErrRulesMoved) {
		return nil // the next poll sees the newest version
	}
	if err == nil {
		k.file = nil
	}
	return err
}

// hasVersionWithText reports whether one of the stored versions has this text.
func (k *Keeper) hasVersionWithText(ctx context.Context, text []byte) (bool, error) {
	all, err := k.opt.Store.History(ctx)
	for _, v := range all {
		if bytes.Equal(v.Text, text) {
			return true, nil
		}
	}
	return false, err
}
