// What dagre needs of graphlib; Coracle's own file.
export {Graph} from './lib/graph';
export * as alg from './lib/alg/index';
