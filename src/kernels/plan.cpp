#include "plan.h"

#include <algorithm>
#include <numeric>

namespace membound {
namespace {

constexpr size_t kMostTogether = size_t{6} << 20;  // floats of an arena for images side by side

// Something that needs a place while the operators [first, last] run.
struct Tenant {
  size_t floats, first, last;
  size_t* offset;
};

bool meet(const Tenant& a, const Tenant& b) { return a.first <= b.last && b.first <= a.last; }

// Each tenant, in this order, gets the lowest place that is free while it is needed. Returns how many floats that takes.
size_t give_places(const std::vector<Tenant>& tenants, const std::vector<size_t>& order, std::vector<size_t>& offsets) {
  std::vector<size_t> placed;  // by offset
  size_t end = 0;
  for (size_t mine : order) {
    const Tenant& tenant = tenants[mine];
    size_t offset = 0;
    for (size_t other : placed) {
      if (!meet(tenant, tenants[other])) continue;
      if (offset + tenant.floats <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + tenants[other].floats);
    }
    offsets[mine] = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine,
                                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                  mine);
    end = std::max(end, offset + tenant.floats);
  }
  return end;
}

// As they are born, which keeps what is used together near; or the largest first, where that takes less.
size_t give_places(std::vector<Tenant>& tenants) {
  std::vector<size_t> order(tenants.size()), offsets(tenants.size()), others(tenants.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tenants[a].first < tenants[b].first; });
  size_t floats = give_places(tenants, order, offsets);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tenants[a].floats > tenants[b].floats; });
  const size_t by_size = give_places(tenants, order, others);
  if (by_size < floats) {
    floats = by_size;
    offsets.swap(others);
  }
  for (size_t i = 0; i < tenants.size(); ++i) *tenants[i].offset = offsets[i];
  return floats;
}

// The lowest place where so many floats are free while the operator runs, beside its own rooms; or nowhere.
size_t find_place(const std::vector<Tenant>& tenants, const Layout& layout, size_t op, size_t floats) {
  std::vector<std::pair<size_t, size_t>> taken;  // from where to where
  for (const Tenant& tenant : tenants)
    if (tenant.first <= op && op <= tenant.last && tenant.offset != &layout.shared[op] && tenant.offset != &layout.workers[op])
      taken.emplace_back(*tenant.offset, *tenant.offset + tenant.floats);
  std::sort(taken.begin(), taken.end());
  size_t offset = 0;
  for (const auto& [first, last] : taken) {
    if (offset + floats <= first) break;
    offset = std::max(offset, last);
  }
  return offset + floats <= layout.floats ? offset : kNowhere;
}

class Planner {
 public:
  Planner(const std::vector<size_t>& sizes, const std::vector<std::unique_ptr<Op>>& ops,
          const std::vector<size_t>& outputs, const Target& target)
      : sizes_(sizes), ops_(ops), target_(target), root_(sizes.size()), last_(sizes.size(), 0) {
    for (size_t value = 0; value < sizes.size(); ++value) {
      const bool alias = value > 0 && ops[value - 1]->is_alias();
      root_[value] = alias ? root_[ops[value - 1]->inputs[0]] : value;
      if (value == 0) continue;
      last_[root_[value]] = std::max(last_[root_[value]], value - 1);
      for (size_t input : ops[value - 1]->inputs) last_[root_[input]] = std::max(last_[root_[input]], value - 1);
    }
    for (size_t output : outputs) last_[root_[output]] = ops.size();
  }

  NetworkPlan plan() const { return plan(target_.max_batch, Stretch()); }

  // Of all stretches that fit, the one that gains most, and of those the shortest. Of several threads that have an image each, whose
  // every operator is near, none waits for another: that gains more.
  NetworkPlan plan_together() const {
    const auto lanes = static_cast<size_t>(target_.traits.width);
    NetworkPlan best;
    if (target_.max_batch < lanes) return best;
    double most = 0.0;
    for (size_t first = 0; first < ops_.size(); ++first) {
      const Stretch stretch = stretch_from(first);
      double gain = 0.0;
      for (size_t i = stretch.first; i < stretch.last; ++i) gain += ops_[i]->gains_together();
      if (gain == 0.0 || gain < most || (target_.threads > 1 && is_near(stretch))) continue;
      NetworkPlan found = plan(lanes, stretch);
      if (found.batch.floats > kMostTogether) continue;
      most = gain;
      best = std::move(found);
    }
    return best;
  }

 private:
  NetworkPlan plan(size_t batch, Stretch stretch) const {
    const auto threads = static_cast<size_t>(target_.threads);
    NetworkPlan plan;
    plan.images = batch;
    plan.by_image = stretch.last > 0 ? stretch.first : count_by_image();
    plan.together = std::move(stretch);
    for (size_t i = 0; i < ops_.size(); ++i) plan.worker_floats.push_back(with_slack(needs_in(plan, i).worker));
    std::vector<Tenant> tenants;
    if (plan.by_image > 0) {
      plan.lanes = 2 * batch > threads ? std::min(batch, threads) : 1;
      plan.alone = lay_out_image(plan, threads);
      plan.beside = plan.lanes > 1 ? lay_out_image(plan, 1) : plan.alone;
      const size_t floats = std::max(plan.lanes * plan.beside.floats, plan.alone.floats);
      tenants.push_back({floats, 0, plan.by_image - 1, &plan.lanes_offset});
    }
    // The input, too, is one of the values of images where there are such.
    plan.batch = empty_layout();
    for (size_t value = 0; value < sizes_.size(); ++value) {
      if (root_[value] != value) continue;
      const bool of_image = plan.by_image > 0 && value <= plan.by_image;
      if (of_image && last_[value] < plan.by_image) continue;
      if (of_image) plan.kept.push_back(value);
      // Images come one by one: what is kept of the first is there while the last runs.
      const size_t first = of_image ? 0 : birth(value);
      const size_t floats = with_slack(sizes_[value] * batch);
      if (!of_image && value > 0 && plan.together.has(value - 1)) {
        // Side by side, and behind the stretch one behind the other.
        const size_t end = plan.together.last - 1;
        tenants.push_back({floats, first, std::min(last_[value], end), &plan.together.values[value]});
        if (last_[value] > end) {
          plan.together.leaving.push_back(value);
          tenants.push_back({floats, end, last_[value], &plan.batch.values[value]});
        }
        continue;
      }
      tenants.push_back({floats, first, last_[value], &plan.batch.values[value]});
    }
    for (size_t i = plan.by_image; i < ops_.size(); ++i) add_rooms(i, needs_in(plan, i), threads, plan, plan.batch, tenants);
    finish(plan.batch, tenants);
    for (size_t value = 0; value < plan.together.values.size(); ++value)
      plan.together.values[value] = plan.together.values[root_[value]];
    please(plan.together.last > 0 ? plan.together.last : plan.by_image, ops_.size(), batch, threads, tenants, plan.batch);
    return plan;
  }

  Needs needs(size_t op, size_t images) const { return ops_[op]->needs(images, target_.traits); }
  Needs needs_in(const NetworkPlan& plan, size_t op) const {
    if (plan.together.has(op)) return ops_[op]->needs_together(reads_before(op, plan.together), target_.traits);
    return needs(op, op < plan.by_image ? 1 : plan.images);
  }

  bool is_near(const Stretch& stretch) const {
    for (size_t i = stretch.first; i < stretch.last; ++i)
      if (!ops_[i]->is_near()) return false;
    return true;
  }

  // Whether an operator reads what is no value of a stretch.
  bool reads_before(size_t op, const Stretch& stretch) const {
    return std::any_of(ops_[op]->inputs.begin(), ops_[op]->inputs.end(),
                       [&](size_t value) { return root_[value] == 0 || !stretch.has(root_[value] - 1); });
  }

  // Operators from this one on that take images side by side, with no input from before them but one that may lie one behind
  // the other.
  Stretch stretch_from(size_t first) const {
    Stretch stretch;
    stretch.first = stretch.last = first;
    for (size_t i = 0; i < first; ++i)
      if (ops_[i]->gains_by_batch()) return stretch;  // all before are taken one by one
    for (; stretch.last < ops_.size(); ++stretch.last) {
      const Op& op = *ops_[stretch.last];
      const bool before = reads_before(stretch.last, stretch);
      if (op.is_input() || op.gains_by_batch() || (op.is_alias() && before)) break;
      if (!op.is_alias() && (!op.takes_together(target_.traits) || (before && !op.takes_parted()))) break;
    }
    stretch.values.assign(sizes_.size(), kNowhere);
    return stretch;
  }
  static size_t birth(size_t value) { return value == 0 ? 0 : value - 1; }

  Layout empty_layout() const {
    Layout layout;
    layout.values.assign(sizes_.size(), kNowhere);
    layout.shared.assign(ops_.size(), kNowhere);
    layout.workers.assign(ops_.size(), kNowhere);
    layout.liked.assign(ops_.size(), kNowhere);
    return layout;
  }

  // The operators before the first one that gains by taking many images at once, if any of them does something.
  size_t count_by_image() const {
    if (target_.max_batch == 1) return 0;
    size_t count = 0;
    bool works = false;
    for (; count < ops_.size() && !ops_[count]->gains_by_batch(); ++count)
      works = works || !(ops_[count]->is_alias() || ops_[count]->is_input());
    return works ? count : 0;
  }

  void add_rooms(size_t op, const Needs& needed, size_t threads, const NetworkPlan& plan, Layout& layout,
                 std::vector<Tenant>& tenants) const {
    if (ops_[op]->is_alias()) return;
    layout.shared[op] = layout.workers[op] = 0;  // of operators that need none
    if (needed.shared > 0) tenants.push_back({with_slack(needed.shared), op, op, &layout.shared[op]});
    if (needed.worker > 0) tenants.push_back({plan.worker_floats[op] * threads, op, op, &layout.workers[op]});
  }

  Layout lay_out_image(const NetworkPlan& plan, size_t threads) const {
    Layout layout = empty_layout();
    std::vector<Tenant> tenants;
    for (size_t value = 0; value <= plan.by_image; ++value)
      if (root_[value] == value)  // what is used later, or is the output, is there until all have run
        tenants.push_back({with_slack(sizes_[value]), birth(value), std::min(last_[value], plan.by_image),
                           &layout.values[value]});
    for (size_t i = 0; i < plan.by_image; ++i) add_rooms(i, needs(i, 1), threads, plan, layout, tenants);
    finish(layout, tenants);
    please(0, plan.by_image, 1, threads, tenants, layout);
    return layout;
  }

  void finish(Layout& layout, std::vector<Tenant>& tenants) const {
    layout.floats = give_places(tenants);
    for (size_t value = 0; value < sizes_.size(); ++value) layout.values[value] = layout.values[root_[value]];
  }

  // What operators like and there is room for, without a float more: their rooms are moved, nothing else is.
  void please(size_t first, size_t last, size_t images, size_t threads, const std::vector<Tenant>& tenants,
              Layout& layout) const {
    for (size_t op = first; op < last; ++op) {
      const Needs liked = ops_[op]->likes(images, target_.traits);
      if (ops_[op]->is_alias() || liked == needs(op, images)) continue;
      const size_t shared = with_slack(liked.shared), worker = with_slack(liked.worker);
      const size_t place = find_place(tenants, layout, op, shared + threads * worker);
      if (place == kNowhere) continue;
      layout.shared[op] = place;
      layout.workers[op] = place + shared;
      layout.liked[op] = worker;
    }
  }

  const std::vector<size_t>& sizes_;
  const std::vector<std::unique_ptr<Op>>& ops_;
  const Target& target_;
  std::vector<size_t> root_;  // of each value, the one whose place it has
  std::vector<size_t> last_;  // the last operator that uses it; of an output, one more
};

}  // namespace

size_t NetworkPlan::table_bytes() const {
  size_t numbers = kept.size() + worker_floats.size() + together.leaving.size() + together.values.size();
  for (const Layout* layout : {&beside, &alone, &batch})
    numbers += layout->values.size() + layout->shared.size() + layout->workers.size() + layout->liked.size();
  return numbers * sizeof(size_t);
}

NetworkPlan plan_together(const std::vector<size_t>& sizes, const std::vector<std::unique_ptr<Op>>& ops,
                          const std::vector<size_t>& outputs, const Target& target) {
  return Planner(sizes, ops, outputs, target).plan_together();
}

NetworkPlan plan_network(const std::vector<size_t>& sizes, const std::vector<std::unique_ptr<Op>>& ops,
                         const std::vector<size_t>& outputs, const Target& target) {
  return Planner(sizes, ops, outputs, target).plan();
}

}  // namespace membound
