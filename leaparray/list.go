package leaparray

import (
	"cmp"
	"slices"
)

// Fold is a cell that folds. Into has no width if the cell has left every window.
type Fold struct {
	Cell
	Into Stretch
}

// ListFolds returns the cells of a list that have to fold, as [View.Fold] does, for callers that
// keep cells in another form. An exactFrom of 0 stands for the result of [View.ExactFrom].
func (l *Ladder) ListFolds(cells []Cell, now, exactFrom int64) (folds []Fold) {
	if exactFrom == 0 {
		exactFrom = l.exactFrom(cells)
	}
	a := l.ages(now)
	for _, c := range cells {
		if into, due := a.foldTarget(c.Stretch); due && into.End() <= exactFrom {
			folds = append(folds, Fold{c, into})
		}
	}
	return folds
}

// exactFrom is View.ExactFrom of a list of cells.
func (l *Ladder) exactFrom(cells []Cell) int64 {
	if l.exact == 0 {
		return maxMoment
	}
	list := slices.Clone(cells)
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(b.End(), a.End()), cmp.Compare(b.Start, a.Start))
	})
	from, sum := maxMoment, int64(0)
	for _, c := range list {
		sum, from = sum+c.N, min(from, c.Start)
		if sum >= l.exact {
			return from
		}
	}
	return 0
}

// SettleNegatives settles cells whose count is negative with cells that contain them, lie within
// them or overlap them: an event may have folded before its refund arrived, in this process or in
// another one. It changes the list. A count that nothing offsets stays negative.
func SettleNegatives(cells []Cell) []Cell { return settleNegatives(cells) }
