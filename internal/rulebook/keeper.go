package rulebook

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/syncer"
)

// every is the interval at which a keeper asks for the newest version.
const every = 500 * time.Millisecond

// Options configure a [Keeper].
type Options struct {
	// Store has the versions, and Book receives the newest one. Required.
	Store Store
	Book  *rules.Book
	// Check returns an error if this node can't use a well-formed document. Required.
	Check func(*rules.Document) error
	// InForce is called with each document that is put in force, before the call that did so
	// returns. Default: nothing is called.
	InForce func(*rules.Document)
	// Joining makes the keeper store nothing until Join is called.
	Joining bool
	// Timeout bounds one attempt to reach the store. Required.
	Timeout time.Duration
	// Logger receives changes of the rules and of the store's reachability. Required.
	Logger *slog.Logger
}

// Keeper keeps a [rules.Book] at the newest version. Its methods may be called from several
// goroutines. Make one with [New].
type Keeper struct {
	opt     Options
	force   atomic.Pointer[state]
	refused refusal // the last version that can't be used here
	trouble string  // the last logged error

	asking  ioLock // held while asking the store
	file    *file  // the file to be stored, nil if there is none
	joining bool

	stop context.CancelFunc
	done sync.WaitGroup
}

// state is the version in force.
type state struct {
	version   twotier.RuleVersion
	confirmed time.Time // when the store said last that it is the newest
}

// refusal is a version that can't be put in force, and the reason.
type refusal struct {
	id  string
	err error
}

// ioLock is a lock that can be held during I/O: a waiting goroutine may give up.
type ioLock chan struct{}

// lock takes the lock, or returns an error if ctx ends first.
func (t ioLock) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t ioLock) unlock() { <-t }

// New returns a keeper that has not asked its store yet.
func New(opt Options) *Keeper {
	return &Keeper{opt: opt, joining: opt.Joining, asking: make(ioLock, 1)}
}

// Open learns the newest version and stores the offered file, if the store can be reached. Then it
// keeps asking until Close. An offered file is in force while the store can't be reached.
func (k *Keeper) Open(ctx context.Context) {
	k.poll(ctx)
	ctx, k.stop = context.WithCancel(context.Background())
	k.done.Go(func() { k.runPoll(ctx) })
}

// Join stores the offered file, and makes the keeper store versions from now on.
func (k *Keeper) Join(ctx context.Context) {
	_ = k.asking.lock(context.Background())
	k.joining = false
	k.asking.unlock()
	k.poll(ctx)
}

// Close stops asking. It may be called twice, and without Open.
func (k *Keeper) Close() {
	if k.stop != nil {
		k.stop()
	}
	k.done.Wait()
}

func (k *Keeper) runPoll(ctx context.Context) {
	for retry.Pause(ctx, every) {
		k.poll(ctx)
	}
}

// poll asks the store once and logs changes of its reachability.
func (k *Keeper) poll(ctx context.Context) {
	if k.asking.lock(ctx) != nil {
		return // it closes
	}
	defer k.asking.unlock()
	ctx, cancel := context.WithTimeout(ctx, k.opt.Timeout)
	defer cancel()
	err := k.sync(ctx)
	if err == nil && k.file != nil && !k.joining {
		err = k.storeFile(ctx)
	}
	if err != nil && k.file != nil && k.force.Load() == nil {
		k.apply(twotier.RuleVersion{Text: k.file.text, Who: k.file.who, At: time.Now()})
	}
	k.logStoreError(err)
}

// logStoreError logs an error once, and its end.
func (k *Keeper) logStoreError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if (text == "") != (k.trouble == "") {
		switch held := k.force.Load(); {
		case err == nil:
			k.opt.Logger.Info("the rules can be read again", "version", held.version.Number)
		case held == nil:
			k.opt.Logger.Warn("the rules can't be read: requests that name rules are refused",
				"error", err)
		default:
			k.opt.Logger.Warn("the rules can't be read: keeping those in force", "version",
				held.version.Number, "error", err)
		}
	}
	k.trouble = text
}

// sync puts the newest version in force. If the store has lost the version in force, sync restores
// it.
func (k *Keeper) sync(ctx context.Context) error {
	number, id, err := k.opt.Store.Newest(ctx)
	if err != nil {
		return err
	}
	held := k.force.Load()
	switch {
	case held != nil && held.version.Number == number && held.version.ID == id:
		k.force.Store(&state{held.version, time.Now()})
		return nil
	case k.joining && held != nil && held.version.Number > number:
		return nil // it is put back later
	case held != nil && held.version.Number > number:
		k.opt.Logger.Warn("the store has lost rules: putting back the version in force", "version",
			held.version.Number, "newest", number)
		return k.opt.Store.Restore(ctx, held.version)
	case number == 0:
		return k.apply(twotier.RuleVersion{})
	case k.refused.id == id:
		return k.refused.err
	}
	v, err := k.opt.Store.Version(ctx, number)
	if err != nil {
		return err
	}
	return k.apply(v)
}

// apply puts a version in force.
func (k *Keeper) apply(v twotier.RuleVersion) error {
	doc, err := k.readWith(rules.ReadVersion, v.Text)
	if err != nil {
		err = fmt.Errorf("version %d can't be used by this node: %w", v.Number, err)
		k.refused = refusal{v.ID, err}
		return err
	}
	k.setCurrent(v, doc)
	return nil
}

func (k *Keeper) setCurrent(v twotier.RuleVersion, doc *rules.Document) {
	k.opt.Book.Set(doc, v.Number)
	if k.opt.InForce != nil {
		k.opt.InForce(doc)
	}
	k.force.Store(&state{v, time.Now()})
	if v.Who != "" {
		k.opt.Logger.Info("rules in force", "version", v.Number, "from", v.Who)
	}
}

// read reads a document for a new version. The error is a *[twotier.DocumentError].
func (k *Keeper) read(text []byte) (*rules.Document, error) { return k.readWith(rules.Read, text) }

func (k *Keeper) readWith(read func(string, []byte) (*rules.Document, error),
	text []byte) (*rules.Document, error) {
	if len(text) > twotier.MaxRuleText {
		return nil, &twotier.DocumentError{Err: fmt.Errorf("rules: longer than %d bytes",
			twotier.MaxRuleText)}
	}
	doc, err := read("rules", text)
	if err == nil {
		err = k.opt.Check(doc)
	}
	if err != nil {
		return nil, &twotier.DocumentError{Err: err}
	}
	return doc, nil
}

// Current returns the version in force, and when the store last confirmed it as the newest. known
// is false if none is in force.
func (k *Keeper) Current() (v twotier.RuleVersion, confirmed time.Time, known bool) {
	s := k.force.Load()
	if s == nil {
		return v, confirmed, false
	}
	return s.version, s.confirmed, true
}

// AnyVersion stands for the newest version, whatever its number.
const AnyVersion = -1

// Put makes a text the successor of version base, and puts it in force on this node. The error is a
// *[twotier.DocumentError] or [twotier.ErrRulesMoved] if it can't, and then nothing has changed. If
// that very text is the newest version already, Put returns that version.
func (k *Keeper) Put(ctx context.Context, base int64, text []byte,
	who string) (twotier.RuleVersion, error) {
	doc, err := k.read(text)
	if err != nil {
		return twotier.RuleVersion{}, err
	}
	if err := k.asking.lock(ctx); err != nil {
		return twotier.RuleVersion{}, unavailable(err)
	}
	defer k.asking.unlock()
	if err := k.sync(ctx); err != nil {
		return twotier.RuleVersion{}, fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
	}
	return k.append(ctx, base, twotier.RuleVersion{Text: bytes.Clone(text), Who: who}, doc)
}

// append stores v after base.
func (k *Keeper) append(ctx context.Context, base int64, v twotier.RuleVersion,
	doc *rules.Document) (twotier.RuleVersion, error) {
	newest := k.force.Load().version
	switch {
	case newest.Number > 0 && bytes.Equal(newest.Text, v.Text):
		return newest, nil
	case base != AnyVersion && base != newest.Number:
		return newest, twotier.ErrRulesMoved
	}
	v.Number, v.ID, v.At = newest.Number+1, rand.Text(), time.Now()
	err := k.opt.Store.Append(ctx, v)
	switch {
	case err == nil:
		k.setCurrent(v, doc)
	case errors.Is(err, twotier.ErrRulesMoved):
	case errors.Is(err, syncer.ErrNotApplied):
		err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
	default:
		err = fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err)
	}
	return v, err
}

// History returns the stored versions, newest first.
func (k *Keeper) History(ctx context.Context) ([]twotier.RuleVersion, error) {
	all, err := k.opt.Store.History(ctx)
	return all, unavailable(err)
}

// Version returns a stored version, or [twotier.ErrNoRuleVersion].
func (k *Keeper) Version(ctx context.Context, number int64) (twotier.RuleVersion, error) {
	v, err := k.opt.Store.Version(ctx, number)
	return v, unavailable(err)
}

// unavailable wraps an error of the store with [twotier.ErrUnavailable].
func unavailable(err error) error {
	if err == nil || errors.Is(err, twotier.ErrNoRuleVersion) {
		return err
	}
	return fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
}

// Read returns the rules of a text, such as that of a version, without putting them in force. An
// empty text means no rules. The error is a *[twotier.DocumentError] if there is a mistake.
func (k *Keeper) Read(text []byte) (*twotier.RuleSet, error) {
	doc, err := k.readWith(rules.ReadVersion, text)
	if err != nil {
		return nil, err
	}
	return doc.Rules, nil
}

// JSON converts a text to JSON.
func (k *Keeper) JSON(text []byte) ([]byte, error) { return rules.JSON(text) }

// Limits lists the limits of the named rules of a text as JSON, see [rules.Limits].
func (k *Keeper) Limits(text []byte) ([]byte, error) { return rules.Limits(text) }

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
		all, err := k.opt.Store.History(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(v twotier.RuleVersion) bool {
			return bytes.Equal(v.Text, f.text)
		}) {
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
